#pragma once

#include <cstddef>
#include <cstdint>

#include "tempera/kernels/blocks.h"

// What the loops of all targets share: what a type is, and how rows of activations lie in the workspace of the product with blocks.
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

// One row in 8 bits: x is about scale q. Sums are of q, over halves of a group and whole ones.
struct QuantizedRow {
  int8_t* q;
  float* scale;
  float* scaled_sum;  // scale times the sum
  int32_t* sum;
  int32_t* half_sum;  // two for each group
};

inline constexpr int64_t kRowBytesOfAGroup = kGroup + 2 * sizeof(float) + 3 * sizeof(int32_t);

inline int64_t quantized_row_bytes(int64_t inputs) {
  return (inputs / kGroup * kRowBytesOfAGroup + 63) / 64 * 64;
}

inline QuantizedRow quantized_row(std::byte* memory, int64_t inputs) {
  const int64_t groups = inputs / kGroup;
  auto* const q = reinterpret_cast<int8_t*>(memory);
  auto* const scale = reinterpret_cast<float*>(q + groups * kGroup);
  auto* const sum = reinterpret_cast<int32_t*>(scale + 2 * groups);
  return {q, scale, scale + groups, sum, sum + groups};
}

}  // namespace tempera::kernels::cpu
