#include "tempera/study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"

namespace tempera::study {
namespace {

TEST(Statistics, TailsOfStudentsT) {
  // Tables: the two-sided 5 % points.
  EXPECT_NEAR(student_two_sided(12.706205, 1), 0.05, 1e-7);
  EXPECT_NEAR(student_two_sided(4.302653, 2), 0.05, 1e-7);
  EXPECT_NEAR(student_two_sided(2.228139, 10), 0.05, 1e-7);
  EXPECT_NEAR(student_two_sided(1.959964, 1e7), 0.05, 1e-6);
  EXPECT_NEAR(student_two_sided(0, 3), 1, 1e-12);
}

TEST(Statistics, IntervalOfThreeValues) {
  const std::vector<double> values{1, 2, 3};
  EXPECT_DOUBLE_EQ(mean(values), 2);
  EXPECT_DOUBLE_EQ(standard_deviation(values), 1);
  EXPECT_NEAR(confidence_half_width(values), 4.302653 / std::sqrt(3.0), 1e-5);
  EXPECT_EQ(confidence_half_width({5}), 0);
}

TEST(Statistics, PairedTest) {
  // Differences 1, 2, 3: t = 2 sqrt(3), 2 degrees of freedom.
  EXPECT_NEAR(paired_p_value({2, 4, 6}, {1, 2, 3}), student_two_sided(2 * std::sqrt(3.0), 2),
              1e-12);
  EXPECT_EQ(paired_p_value({1, 2}, {1, 2}), 1);
  EXPECT_EQ(paired_p_value({2, 3}, {1, 2}), 0);
  EXPECT_EQ(paired_p_value({2}, {1}), 1);
  EXPECT_THROW(paired_p_value({1, 2}, {1}), Error);
}

}  // namespace
}  // namespace tempera::study
