#include "tempera/families/rope_factors.h"

#include <gtest/gtest.h>

#include <limits>

#include "tempera/base/error.h"

namespace tempera::families {
namespace {

using nn::RopeConfig;
using nn::RopeScaling;

RopeConfig llama3(double base, double factor, int64_t context, double low, double high) {
  RopeConfig rope;
  rope.base = base;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = factor;
  rope.original_context = context;
  rope.low_factor = low;
  rope.high_factor = high;
  return rope;
}

RopeConfig read(const std::vector<float>& factors, double base) {
  RopeConfig rope;
  rope.base = base;
  read_rope_factors(factors, rope, "x");
  return rope;
}

// By hand: 8 frequencies 10^(-i / 2); the ends are 16 turns of 100 tokens a turn and 4.
TEST(RopeFactors, FollowTheFormula) {
  const auto factors = rope_factors(llama3(1e4, 8, 1000, 1, 4), 16);
  ASSERT_EQ(factors.size(), 8U);
  EXPECT_FLOAT_EQ(factors[0], 1);                        // 159 turns
  EXPECT_FLOAT_EQ(factors[3], 1);                        // 5.03 turns
  const double turns = 1000 * 0.01 / 6.283185307179586;  // 1.59, of the fifth
  const double share = (turns - 1) / 3;
  EXPECT_NEAR(factors[4], 1 / ((1 - share) / 8 + share), 1e-5);
  EXPECT_FLOAT_EQ(factors[5], 8);  // half a turn
  EXPECT_FLOAT_EQ(factors[7], 8);
}

TEST(RopeFactors, TheSettingsOfKnownModelsComeBack) {
  for (const int64_t size : {64, 128})
    for (const double factor : {8.0, 32.0}) {
      const auto rope = llama3(500000, factor, 8192, 1, 4);
      EXPECT_EQ(read(rope_factors(rope, size), 500000), rope) << size << " " << factor;
    }
}

// What cannot be told apart by the factors may come back otherwise, but with the same factors.
TEST(RopeFactors, AnySettingsComeBackWithTheSameFactors) {
  for (const int64_t size : {4, 8, 16, 96})
    for (const double factor : {1.5, 4.0, 31.7})
      for (const int64_t context : {16, 33, 4096, 100000})
        for (const auto& [low, high] : {std::pair{1.0, 4.0}, {2.0, 3.0}, {0.5, 60.0}}) {
          const auto rope = llama3(10000, factor, context, low, high);
          const auto wanted = rope_factors(rope, size);
          if (wanted.back() < static_cast<float>(factor)) continue;  // then it cannot be known
          RopeConfig found = read(wanted, 10000);
          std::vector<float> given(wanted.size(), static_cast<float>(found.factor));
          if (found.scaling == RopeScaling::kNone) given.assign(wanted.size(), 1);
          if (found.scaling == RopeScaling::kLlama3) given = rope_factors(found, size);
          for (size_t i = 0; i < wanted.size(); ++i)
            EXPECT_NEAR(given[i], wanted[i], 2e-5F * wanted[i])
                << size << " " << factor << " " << context << " " << low << " " << high;
        }
}

TEST(RopeFactors, OneFactorForAllIsLinear) {
  const RopeConfig rope = read({3, 3, 3, 3}, 10000);
  EXPECT_EQ(rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope.factor, 3);
  EXPECT_EQ(read({1, 1, 1, 1}, 10000).scaling, RopeScaling::kNone);
}

TEST(RopeFactors, AnyOthersAreKeptAsTheyAre) {
  for (const auto& [factors, base] : std::vector<std::pair<std::vector<float>, double>>{
           {{4, 1, 1, 1}, 10000},  // grows with the frequency
           {{1, 3, 2, 4, 4, 4}, 10000},
           {{1, 1.1F, 1.2F, 1.3F, 1.4F, 1.5F}, 10000},
           {{0.9F, 1, 1.5F, 4}, 10000},
           {{0.5F, 0.6F, 0.8F, 1}, 10000},
           {{1, 2, 4, 4}, 1}}) {  // all turn alike
    const RopeConfig rope = read(factors, base);
    EXPECT_EQ(rope.scaling, RopeScaling::kFactors);
    EXPECT_EQ(rope_factors(rope, static_cast<int64_t>(2 * factors.size())), factors);
  }
}

TEST(RopeFactors, WhatIsNoFactorIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(read({}, 10000), Error);
  EXPECT_THROW(read({1, nan}, 10000), Error);
  EXPECT_THROW(read({1, infinity}, 10000), Error);
  EXPECT_THROW(read({1, 0}, 10000), Error);
  EXPECT_THROW(read({1, -2, 4}, 10000), Error);
  RopeConfig rope;
  rope.scaling = RopeScaling::kYarn;
  EXPECT_THROW(read_rope_factors(std::vector<float>{1, 2}, rope, "x"), Error);
}

}  // namespace
}  // namespace tempera::families
