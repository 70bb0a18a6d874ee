#include "tempera/eval/classification.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

TEST(Classification, TwoClassesByHand) {
  // Class 1: right twice, answered three times, asked for four times: F1 = 4/7.
  const std::vector<int64_t> right = {1, 1, 1, 1, 0, 0}, answers = {1, 1, 0, 0, 0, 1};
  const auto scores = score_classes(answers, right, 2);
  EXPECT_EQ(scores.examples, 6);
  EXPECT_DOUBLE_EQ(scores.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(scores.f1_binary(), 4.0 / 7);
  EXPECT_DOUBLE_EQ(scores.f1_of_class[0], 2.0 / 5);
  EXPECT_DOUBLE_EQ(scores.f1_macro, (4.0 / 7 + 2.0 / 5) / 2);
}

TEST(Classification, AClassThatNeverComesUpIsNotCounted) {
  const std::vector<int64_t> right = {0, 2, 2}, answers = {0, 0, 2};
  const auto scores = score_classes(answers, right, 4);
  EXPECT_DOUBLE_EQ(scores.f1_macro, (2.0 / 3 + 2.0 / 3) / 2);
  EXPECT_THROW(scores.f1_binary(), Error);
}

TEST(Classification, NothingRightIsZeroAndNoNan) {
  const std::vector<int64_t> right = {0, 0}, answers = {1, 1};
  const auto scores = score_classes(answers, right, 2);
  EXPECT_EQ(scores.accuracy, 0);
  EXPECT_EQ(scores.f1_macro, 0);
}

TEST(Classification, BadInputIsRefused) {
  const std::vector<int64_t> one = {0}, two = {0, 1}, beyond = {2};
  EXPECT_THROW(score_classes(one, two, 2), Error);
  EXPECT_THROW(score_classes({}, {}, 2), Error);
  EXPECT_THROW(score_classes(beyond, one, 2), Error);
}

}  // namespace
}  // namespace tempera::eval
