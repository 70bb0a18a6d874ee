#include "tempera/io/float_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tempera::io {
namespace {

// The value of a half by its definition.
double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 31  ? (fraction ? std::nan("") : HUGE_VAL)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(FloatBitsTest, EveryHalfHasItsValueAndComesBack) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float value = float_of_half(half);
    const double expected = half_value(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_EQ(half_of_float(value), half | 0x200) << i;  // quiet
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), expected) << i;
    EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0) << i;
    EXPECT_EQ(half_of_float(value), half) << i;
  }
}

// Between two neighbours: below the middle down, above it up, in the middle to the even one.
TEST(FloatBitsTest, HalvesRoundToNearestEven) {
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const double next = i == 0x7bff ? 65536.0 : half_value(high);
    const auto middle = static_cast<float>((half_value(low) + next) / 2);
    EXPECT_EQ(half_of_float(middle), i % 2 == 0 ? low : high) << i;
    EXPECT_EQ(half_of_float(std::nextafter(middle, 0.0F)), low) << i;
    EXPECT_EQ(half_of_float(std::nextafter(middle, 1e9F)), high) << i;
    EXPECT_EQ(half_of_float(-middle), half_of_float(middle) | 0x8000) << i;
  }
  EXPECT_EQ(half_of_float(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(half_of_float(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(half_of_float(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(FloatBitsTest, Bfloat16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7f80; ++i) {
    const uint32_t base = i << 16;
    const auto rounded = [&](uint32_t bits) {
      return bfloat16_of_float(std::bit_cast<float>(bits));
    };
    EXPECT_EQ(rounded(base), i);
    EXPECT_EQ(rounded(base + 0x7fff), i);
    EXPECT_EQ(rounded(base + 0x8000), i + (i & 1));
    EXPECT_EQ(rounded(base + 0x8001), i + 1);
    EXPECT_EQ(rounded(base + 0x80008001U), 0x8000 + i + 1);
    EXPECT_EQ(std::bit_cast<uint32_t>(float_of_bfloat16(static_cast<uint16_t>(i))), base);
  }
  EXPECT_EQ(bfloat16_of_float(std::numeric_limits<float>::infinity()), 0x7f80);
  for (const uint32_t nan : {0x7f800001U, 0xffffffffU, 0x7fc00000U, 0xff810000U})
    EXPECT_TRUE(std::isnan(float_of_bfloat16(bfloat16_of_float(std::bit_cast<float>(nan)))));
}

}  // namespace
}  // namespace tempera::io
