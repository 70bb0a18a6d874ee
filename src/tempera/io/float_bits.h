#pragma once

#include <bit>
#include <cstdint>

namespace tempera::io {

// Conversions of 16-bit floats by integer arithmetic, without branches, so that compilers turn
// loops of them into vector code for any processor.

inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & (0U - static_cast<uint32_t>(condition)));
}

// IEEE half precision. Exact; a signalling NaN becomes a quiet one, as hardware does.
inline float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7fffU;
  const uint32_t normal = (magnitude << 13) + (112U << 23);
  // Below the smallest normal half, and zero: a multiple of 2^-24.
  const auto small =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  // Infinity and NaN: the exponent is moved twice, to the largest one.
  const uint32_t special = (normal + (112U << 23)) | select(magnitude > 0x7c00U, 1U << 22, 0);
  return std::bit_cast<float>(
      sign | select(magnitude < 0x0400U, small, select(magnitude < 0x7c00U, normal, special)));
}

// Rounds to nearest, ties to even; too large becomes infinite.
inline uint16_t half_of_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  // From the smallest normal half upwards the exponent is moved, and the bits below are rounded; a
  // carry out of the fraction raises the exponent, at last to infinity's.
  const uint32_t normal = (magnitude - (112U << 23) + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  // Below it, adding 0.5 makes the sum's last place 2^-24, so that the addition rounds.
  const float sum = std::bit_cast<float>(magnitude) + 0.5F;
  const uint32_t small = std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5F);
  const uint32_t nan = 0x7e00U | (magnitude >> 13 & 0x1ffU);
  const uint32_t large = select(magnitude > 0x7f800000U, nan, 0x7c00U);
  const uint32_t finite = select(magnitude < 0x38800000U, small, normal);                // 2^-14
  return static_cast<uint16_t>(sign | select(magnitude >= 0x47800000U, large, finite));  // 65536
}

inline float float_of_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; a NaN stays one and becomes quiet.
inline uint16_t bfloat16_of_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  const uint32_t nan = bits >> 16 | 0x40U;
  return static_cast<uint16_t>(select((bits & 0x7fffffffU) > 0x7f800000U, nan, rounded));
}

}  // namespace tempera::io
