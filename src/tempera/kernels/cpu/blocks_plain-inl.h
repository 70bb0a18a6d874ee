// The product with blocks where the processor has no vectors worth the name: loops that compilers
// see through.
// Of one target alone, so that it is read once.
#pragma once

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tempera/kernels/blocks.h"
#include "tempera/kernels/cpu/blocks_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kTileRows = 4;
inline constexpr int64_t kOutputs = 1;

inline float half_at(const uint8_t* at) {
  const hn::CappedTag<hwy::float16_t, 1> half;
  const hn::CappedTag<float, 1> single;
  hwy::float16_t value;
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  // Highway's conversion by hand makes finite numbers of these.
  if ((bits & 0x7c00U) == 0x7c00U)
    return std::bit_cast<float>((bits & 0x8000U) << 16 | 0x7f800000U | (bits & 0x3ffU) << 13);
  std::memcpy(&value, at, sizeof(value));
  return hn::GetLane(hn::PromoteTo(single, hn::LoadU(half, &value)));
}

template <int bits, bool minima>
struct SmallBlocks {
  static constexpr int64_t kElements = 32, kGroupElements = 32;
  static constexpr int64_t kHeader = minima ? 4 : 2;
  static constexpr int64_t kBytes = kHeader + int64_t{4} * bits;
  static constexpr int kOffset = minima ? 0 : 1 << (bits - 1);
  static float scale(const uint8_t* block, int64_t) { return half_at(block); }
  static float minimum(const uint8_t* block, int64_t) { return minima ? half_at(block + 2) : 0; }
  static void numbers(const uint8_t* block, int64_t, uint8_t* to) {
    if constexpr (bits == 8) {
      for (int i = 0; i < 32; ++i) to[i] = static_cast<uint8_t>(block[2 + i] ^ 0x80);
      return;
    }
    const uint8_t* at = block + kBytes - 16;
    for (int i = 0; i < 16; ++i) {
      to[i] = at[i] & 15;
      to[16 + i] = static_cast<uint8_t>(at[i] >> 4);
    }
    if constexpr (bits == 5)
      for (int i = 0; i < 32; ++i)
        to[i] = static_cast<uint8_t>(to[i] | (block[kHeader + i / 8] >> (i % 8) & 1) << 4);
  }
};

template <int bits>
struct LargeBlocks {
  static constexpr int64_t kElements = 256, kGroupElements = 32;
  static constexpr int64_t kBytes = 16 + 32 * bits;
  static constexpr int kOffset = 0;
  static float scale(const uint8_t* block, int64_t group) {
    const uint8_t* a = block + 4;
    return half_at(block) *
           static_cast<float>(group < 4 ? a[group] & 63
                                        : (a[4 + group] & 15) | (a[group - 4] >> 6) << 4);
  }
  static float minimum(const uint8_t* block, int64_t group) {
    const uint8_t *a = block + 4, *b = block + 8;
    return -half_at(block + 2) *
           static_cast<float>(group < 4 ? b[group] & 63
                                        : (a[4 + group] >> 4) | (b[group - 4] >> 6) << 4);
  }
  static void numbers(const uint8_t* block, int64_t group, uint8_t* to) {
    const uint8_t* at = block + kBytes - 128 + group / 2 * 32;
    for (int i = 0; i < 32; ++i)
      to[i] = static_cast<uint8_t>(group % 2 == 0 ? at[i] & 15 : at[i] >> 4);
    if constexpr (bits == 5)
      for (int i = 0; i < 32; ++i)
        to[i] = static_cast<uint8_t>(to[i] | (block[16 + i] >> group & 1) << 4);
  }
};

// What the loop knows of a type, as in blocks-inl.h: values are scale (number - kOffset) + minimum.
template <BlockType type>
struct Blocks : std::conditional_t<is_small(type), SmallBlocks<bits_of(type), has_minima(type)>,
                                   LargeBlocks<bits_of(type)>> {};

template <>
struct Blocks<BlockType::kQ6_K> {
  static constexpr int64_t kElements = 256, kGroupElements = 16;
  static constexpr int64_t kBytes = 210;
  static constexpr int kOffset = 32;
  static float scale(const uint8_t* block, int64_t group) {
    return half_at(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + group]));
  }
  static float minimum(const uint8_t*, int64_t) { return 0; }
  static void numbers(const uint8_t* block, int64_t group, uint8_t* to) {
    const int64_t half = group / 8, part = group % 8 / 2, place = group % 2 * 16;
    const uint8_t* low = block + 64 * half + part % 2 * 32 + place;
    const uint8_t* high = block + 128 + 32 * half + place;
    for (int i = 0; i < 16; ++i)
      to[i] =
          static_cast<uint8_t>((low[i] >> (part / 2 * 4) & 15) | (high[i] >> (2 * part) & 3) << 4);
  }
};

// A row of the matrix times kRows rows of x.
template <class Type, int kRows>
void multiply_one(const uint8_t* block, int64_t blocks, const QuantizedRow* x, float* sum) {
  constexpr int64_t kGroups = Type::kElements / Type::kGroupElements;
  std::fill_n(sum, kRows, 0.0F);
  for (int64_t b = 0; b < blocks; ++b, block += Type::kBytes)
    for (int64_t g = 0; g < kGroups; ++g) {
      const int64_t group = b * kGroups + g, at = group * Type::kGroupElements / kGroup;
      uint8_t q[Type::kGroupElements];
      Type::numbers(block, g, q);
      const float scale = Type::scale(block, g), minimum = Type::minimum(block, g);
      for (int r = 0; r < kRows; ++r) {
        const QuantizedGroup& whole_group = x[r].groups[at];
        const bool is_half = Type::kGroupElements != kGroup;
        const int8_t* row = is_half ? x[r].half(group) : whole_group.q;
        int32_t whole = 0;
        for (int64_t i = 0; i < Type::kGroupElements; ++i)
          whole += static_cast<int16_t>(q[i]) * static_cast<int16_t>(row[i]);
        whole -= Type::kOffset * (is_half ? x[r].half_sum(group) : whole_group.sum);
        sum[r] += static_cast<float>(whole) * (scale * whole_group.scale);
        sum[r] += minimum * whole_group.scaled_sum;
      }
    }
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
