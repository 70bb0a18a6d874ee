#include "tempera/eval/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

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

// By hand, after Wilson (1927).
TEST(Bootstrap, ABinomialShare) {
  const auto half = binomial(0.5, 10);
  EXPECT_NEAR(half.low, 0.236593, 1e-6);
  EXPECT_NEAR(half.high, 0.763407, 1e-6);
  EXPECT_NEAR(half.standard_error, std::sqrt(0.25 / 9), 1e-12);
  const auto all = binomial(1, 20);
  EXPECT_NEAR(all.low, 20 / (20 + 1.959963984540054 * 1.959963984540054), 1e-12);
  EXPECT_EQ(all.high, 1);
  EXPECT_EQ(binomial(0, 20).low, 0);
  EXPECT_NEAR(binomial(0, 20).high, 1 - all.low, 1e-12);
  EXPECT_THROW(binomial(0, 0), Error);
}

// How often the interval holds the true share, over many repetitions of 40 independent answers.
TEST(Bootstrap, ABinomialIntervalHoldsTheTruth) {
  for (const double truth : {0.1, 0.5, 0.9}) {
    int held = 0;
    constexpr int kTimes = 2000, kAnswers = 40;
    for (int time = 0; time < kTimes; ++time) {
      data::RandomStream random(7, static_cast<uint64_t>(time));
      int right = 0;
      for (int i = 0; i < kAnswers; ++i) right += random.uniform() < truth ? 1 : 0;
      const auto found = binomial(right / static_cast<double>(kAnswers), kAnswers);
      held += found.low <= truth && truth <= found.high ? 1 : 0;
    }
    EXPECT_NEAR(held / static_cast<double>(kTimes), 0.95, 0.025) << truth;
  }
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
