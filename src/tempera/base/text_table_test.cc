#include "tempera/base/text_table.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"

namespace tempera {
namespace {

TEST(TextTable, AlignsNumbersToTheRight) {
  TextTable table({"name", "ms", "loss"});
  table.add({"a", "10.25", "1 ± 2"});
  table.add({"longer", "9.75", "3"});
  EXPECT_EQ(table.text(),
            "name       ms   loss\n"
            "a       10.25  1 ± 2\n"
            "longer   9.75      3\n");
  EXPECT_THROW(table.add({"too few"}), Error);
}

TEST(Numbers, AreWrittenShort) {
  EXPECT_EQ(fixed(1.256, 2), "1.26");
  EXPECT_EQ(scientific(3.1e-7), "3e-07");
  EXPECT_EQ(megabytes(12'345'678), "12.3 MB");
}

}  // namespace
}  // namespace tempera
