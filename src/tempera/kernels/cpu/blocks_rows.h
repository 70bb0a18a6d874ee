#pragma once

#include <cstddef>
#include <cstdint>

#include "tempera/kernels/blocks.h"

// What the loops of all targets share: what a type is, and how rows of activations lie in the
// workspace of the product with blocks.
namespace tempera::kernels::cpu {

// Of the types whose numbers have 4, 5 or 8 bits; kQ6_K is by itself.
constexpr bool is_small(BlockType type) { return type <= BlockType::kQ8_0; }
constexpr bool has_minima(BlockType type) {
  return type == BlockType::kQ4_1 || type == BlockType::kQ5_1;
}
constexpr int bits_of(BlockType type) {
  switch (type) {
    case BlockType::kQ8_0:
      return 8;
    case BlockType::kQ5_0:
    case BlockType::kQ5_1:
    case BlockType::kQ5_K:
      return 5;
    default:
      return 4;
  }
}

inline constexpr int64_t kGroup = 32;  // elements with one scale

// A group of a row in 8 bits: x is about scale q. All of it in one line of the cache, so that a
// loop over groups follows one pointer. Sums are of q, over halves of the group and the whole.
struct alignas(64) QuantizedGroup {
  int8_t q[kGroup];
  float scale;
  float scaled_sum;  // scale times the sum
  int32_t sum;
  int32_t half_sum[2];
};
static_assert(sizeof(QuantizedGroup) == 64);

// The groups of a row. Some types of blocks have groups of half the size.
struct QuantizedRow {
  QuantizedGroup* groups;

  const int8_t* half(int64_t index) const { return groups[index / 2].q + index % 2 * 16; }
  int32_t half_sum(int64_t index) const { return groups[index / 2].half_sum[index % 2]; }
};

inline int64_t quantized_row_bytes(int64_t inputs) {
  return inputs / kGroup * static_cast<int64_t>(sizeof(QuantizedGroup));
}

inline QuantizedRow quantized_row(std::byte* memory) {
  return {reinterpret_cast<QuantizedGroup*>(memory)};
}

}  // namespace tempera::kernels::cpu
