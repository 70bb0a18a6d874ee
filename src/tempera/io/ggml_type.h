#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tempera::io {

// How a GGUF file stores the elements of a tensor: blocks of so many along a row, each of so many
// bytes. The values are those of the file.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;  // F32, Q4_K, ...
  uint64_t block_elements;
  uint64_t block_bytes;
};

// Null for a number that is none of the above.
const GgmlTypeInfo* find_ggml_type(uint32_t id);

const GgmlTypeInfo& info_of(GgmlType type);

// Bytes of a row-major tensor; throws, with `what` before the reason, when a row is not a whole
// number of blocks, a dimension is negative, or the product does not fit.
uint64_t ggml_bytes(GgmlType type, std::span<const int64_t> shape, std::string_view what);

// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace tempera::io
