#include "tempera/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tempera/base/version.h"

namespace tempera {
namespace {

TEST(Check, ThrowsTheJoinedPartsAndOnlyWhenTheConditionFails) {
  int evaluated = 0;
  EXPECT_NO_THROW(TEMPERA_CHECK(evaluated == 0, "never ", ++evaluated));
  EXPECT_EQ(evaluated, 0);
  try {
    TEMPERA_CHECK(1 > 2, "window: ", -3, " given, ", 0.5, " expected");
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "window: -3 given, 0.5 expected");
  }
}

TEST(Check, IsOneStatement) {
  bool other = false;
  if (false)
    TEMPERA_CHECK(false, "unreachable");
  else
    other = true;
  EXPECT_TRUE(other);
}

TEST(UsageError, IsAnError) { EXPECT_THROW(throw UsageError("x"), Error); }

TEST(Version, HasThreeNumbers) {
  const std::string text = version();
  EXPECT_EQ(std::count(text.begin(), text.end(), '.'), 2) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789."), std::string::npos) << text;
}

}  // namespace
}  // namespace tempera
