#pragma once

#include <cstdint>

// Counter-based random bits for the dropout of probabilities: a pure function of (seed, row, key),
// so that the backward pass draws the same bits again and none are stored. The row key costs a
// 64-bit mix once a row; a key's bits then cost a few 32-bit operations, which SIMD does a vector
// at a time.
namespace tempera::kernels {

struct DropoutRow {
  uint32_t add;
  uint32_t flip;
};

// row: (b * q_heads + h) * q_rows + i
constexpr DropoutRow dropout_row(uint64_t seed, uint64_t row) {
  uint64_t z = seed + (row + 1) * 0x9E3779B97F4A7C15ULL;  // splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return {static_cast<uint32_t>(z), static_cast<uint32_t>(z >> 32)};
}

inline constexpr uint32_t kDropoutStep = 0x9E3779B9U;
inline constexpr uint32_t kDropoutMul0 = 0x7FEB352DU;
inline constexpr uint32_t kDropoutMul1 = 0x846CA68BU;

constexpr uint32_t dropout_bits(DropoutRow row, uint32_t key) {
  uint32_t x = key * kDropoutStep + row.add;
  x = (x ^ (x >> 16)) * kDropoutMul0;
  x = (x ^ (x >> 15)) * kDropoutMul1;
  return x ^ (x >> 16) ^ row.flip;
}

// A probability is kept where dropout_bits >= this threshold.
constexpr uint32_t dropout_threshold(double probability) {
  return static_cast<uint32_t>(probability * 4294967296.0);
}

}  // namespace tempera::kernels
