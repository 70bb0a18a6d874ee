#include "tempera/data/short_windows.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"
#include "tempera/data/testing_rows.h"

namespace tempera::data {
namespace {

TEST(ShortWindows, CutsTheRowsOfAShareOfTheSteps) {
  const auto whole = rows_of({100}, 10);
  const ShortWindows mixed(whole, whole, 0.25, 4);
  std::vector<uint64_t> cut;
  for (uint64_t step = 0; step < 12; ++step) {
    const Batch before = whole->train(whole_batch(step, 2)),
                after = mixed.train(whole_batch(step, 2));
    EXPECT_EQ(after.tokens, before.tokens);
    EXPECT_EQ(after.targets, before.targets) << "what follows a piece is still predicted";
    if (after.documents == 0) continue;
    cut.push_back(step);
    EXPECT_EQ(after.document_lengths, (std::vector<int64_t>{4, 4, 2, 4, 4, 2}));
  }
  EXPECT_EQ(cut, (std::vector<uint64_t>{3, 7, 11}));
}

TEST(ShortWindows, DocumentsStayApartAndRowsAreFilledUp) {
  const auto whole = rows_of({7, 3, 10}, 10);
  const ShortWindows mixed(whole, whole, 1, 4);
  const Batch batch = mixed.train(whole_batch(0, 2));
  ASSERT_EQ(batch.documents, 3);
  const std::vector<int64_t> parted{4, 3, 3, 4, 4, 2}, other{4, 4, 2, 4, 3, 3};
  EXPECT_TRUE(batch.document_lengths == parted || batch.document_lengths == other);
}

TEST(ShortWindows, RefusesWhatIsNoShareAndNoLength) {
  const auto whole = rows_of({20}, 10);
  EXPECT_NE(message_of([&] { ShortWindows(whole, whole, 1.5, 4); }).find("1.5"), std::string::npos);
  EXPECT_NE(message_of([&] { ShortWindows(whole, whole, 0.5, 0); }).find("at least 1"),
            std::string::npos);
}

}  // namespace
}  // namespace tempera::data
