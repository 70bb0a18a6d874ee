#include "tempera/plot/ticks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tempera/plot/testing.h"

namespace tempera::plot {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string labels(const Scale& scale, int target) {
  std::string text;
  for (const Tick& tick : make_ticks(scale, target)) text += (text.empty() ? "" : " ") + tick.label;
  return text;
}

TEST(TicksTest, LinearTicksAreRound) {
  EXPECT_EQ(labels({{0, 1}, false}, 5), "0.0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(labels({{0, 100}, false}, 5), "0 20 40 60 80 100");
  EXPECT_EQ(labels({{-3, 7}, false}, 5), "\u22122 0 2 4 6");
  EXPECT_EQ(labels({{0, 20000}, false}, 4), "0 5k 10k 15k 20k");
  EXPECT_EQ(labels({{0, 1e6}, false}, 4), "0.00 0.25M 0.50M 0.75M 1.00M");
  EXPECT_EQ(labels({{0.0101, 0.0129}, false}, 4), "0.011 0.012");
  EXPECT_EQ(labels({{0, 4e-6}, false}, 4), "0 1e-06 2e-06 3e-06 4e-06");
}

TEST(TicksTest, LogTicksAreDecadesOrOneTwoFive) {
  EXPECT_EQ(labels({{1e-3, 1e3}, true}, 8), "0.001 0.01 0.1 1 10 100 1000");
  EXPECT_EQ(labels({{1, 100}, true}, 8), "1 2 5 10 20 50 100");
  EXPECT_EQ(labels({{1e2, 1e7}, true}, 5), "100 1000 10k 100k 1M 10M");
  // Less than a decade: round values on a linear grid.
  EXPECT_EQ(labels({{2.1, 2.9}, true}, 4), "2.2 2.4 2.6 2.8");
  EXPECT_LE(make_ticks({{1e-300, 1e300}, true}, 6).size(), 8u);
}

TEST(TicksTest, RangesAreNeverDegenerate) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto check = [](Range range, bool log) {
    const Scale scale(range, log);
    EXPECT_TRUE(std::isfinite(range.low) && std::isfinite(range.high));
    EXPECT_LT(range.low, range.high);
    EXPECT_NEAR(scale.unit(range.low), 0, 1e-9);
    EXPECT_NEAR(scale.unit(range.high), 1, 1e-9);
    const auto ticks = make_ticks(scale, 5);
    EXPECT_GE(ticks.size(), 2u) << range.low << " " << range.high;
    EXPECT_LE(ticks.size(), 12u);
    for (size_t i = 1; i < ticks.size(); ++i) EXPECT_LT(ticks[i - 1].value, ticks[i].value);
  };
  using Values = std::vector<double>;
  for (const Values& values :
       {Values{}, Values{kNan, inf, -inf}, Values{0}, Values{5}, Values{-7e-8},
        Values{1e16, 1e16 + 2}, Values{-1e308, 1e308}, Values{5e-324}, Values{0, 1e-310},
        Values{1e308}, Values{1, kNan, 3}, Values{-4, -2}})
    check(data_range(values, false), false);
  for (const Values& values : {Values{}, Values{0, -1}, Values{3}, Values{5e-324, 1e308},
                               Values{1e-3, kNan, 1e3}, Values{7, 7.0000001}})
    check(data_range(values, true), true);
  const Range plain = data_range(Values{1, kNan, 3, inf}, false);
  EXPECT_EQ(plain.low, 1);
  EXPECT_EQ(plain.high, 3);
  const Range positive = data_range(Values{-5, 0, 2, 8}, true);
  EXPECT_EQ(positive.low, 2);
  EXPECT_EQ(positive.high, 8);
}

TEST(TicksTest, ScalePlacesValues) {
  const Scale linear({10, 20}, false), log({1, 100}, true);
  EXPECT_DOUBLE_EQ(linear.unit(15), 0.5);
  EXPECT_DOUBLE_EQ(log.unit(10), 0.5);
  EXPECT_TRUE(std::isfinite(linear.unit(1e308)));
  EXPECT_FALSE(log.shows(0));
  EXPECT_FALSE(log.shows(-1));
  EXPECT_FALSE(linear.shows(kNan));
  EXPECT_TRUE(linear.shows(-1));
  EXPECT_FALSE(linear.inside(-1));
}

TEST(TicksTest, Numbers) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(512), "512");
  EXPECT_EQ(short_number(4096), "4096");
  EXPECT_EQ(short_number(16384), "16.4k");
  EXPECT_EQ(short_number(1.5e6), "1.5M");
  EXPECT_EQ(short_number(-0.25), "\u22120.25");
  EXPECT_EQ(short_number(1e-7), "1e-07");
  EXPECT_EQ(short_number(kNan), "\u2013");
  EXPECT_EQ(fixed_number(3.14159, 2), "3.14");
  EXPECT_EQ(fixed_number(-0.001, 2), "0.00");
  EXPECT_EQ(fixed_number(1e300, 2), "1e+300");
  EXPECT_EQ(fixed_number(kInfinity, 1), "\u2013");
}

}  // namespace
}  // namespace tempera::plot
