#include "tempera/eval/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

TEST(Bootstrap, OfAMeanIsNearTheNormalInterval) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(i % 4 == 0 ? 1 : 0);
  const auto estimate = bootstrap_mean(values);
  EXPECT_DOUBLE_EQ(estimate.value, 0.25);
  const double error = std::sqrt(0.25 * 0.75 / 399);
  EXPECT_NEAR(estimate.standard_error, error, 1e-12);
  EXPECT_NEAR(estimate.low, 0.25 - 1.96 * error, 0.006);
  EXPECT_NEAR(estimate.high, 0.25 + 1.96 * error, 0.006);
  EXPECT_EQ(bootstrap_mean(values).low, estimate.low);
}

TEST(Bootstrap, OfAnyStatistic) {
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto largest = [](std::span<const double> some) {
    double most = 0;
    for (const double value : some) most = std::max(most, value);
    return most;
  };
  const auto estimate = bootstrap(values, largest);
  EXPECT_EQ(estimate.value, 10);
  EXPECT_EQ(estimate.high, 10);
  EXPECT_LT(estimate.low, 9.5);
  EXPECT_GT(estimate.standard_error, 0.3);
  EXPECT_THROW(bootstrap({}, largest), Error);
}

TEST(Bootstrap, OfOneExampleIsThatExample) {
  const std::vector<double> one = {3};
  const auto estimate = bootstrap_mean(one);
  EXPECT_EQ(estimate.value, 3);
  EXPECT_EQ(estimate.low, 3);
  EXPECT_EQ(estimate.standard_error, 0);
}

}  // namespace
}  // namespace tempera::eval
