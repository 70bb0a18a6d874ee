#include "tempera/io/ggml_type.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tempera/base/error.h"

namespace tempera::io {
namespace {

// By rising id. Types that cannot be converted are here too: the metadata and the other tensors of
// their files are still of use.
constexpr std::array<GgmlTypeInfo, 30> kTypes{{{GgmlType::kF32, "F32", 1, 4},
                                               {GgmlType::kF16, "F16", 1, 2},
                                               {GgmlType::kQ4_0, "Q4_0", 32, 18},
                                               {GgmlType::kQ4_1, "Q4_1", 32, 20},
                                               {GgmlType::kQ5_0, "Q5_0", 32, 22},
                                               {GgmlType::kQ5_1, "Q5_1", 32, 24},
                                               {GgmlType::kQ8_0, "Q8_0", 32, 34},
                                               {GgmlType::kQ2_K, "Q2_K", 256, 84},
                                               {GgmlType::kQ3_K, "Q3_K", 256, 110},
                                               {GgmlType::kQ4_K, "Q4_K", 256, 144},
                                               {GgmlType::kQ5_K, "Q5_K", 256, 176},
                                               {GgmlType::kQ6_K, "Q6_K", 256, 210},
                                               {GgmlType::kIQ2_XXS, "IQ2_XXS", 256, 66},
                                               {GgmlType::kIQ2_XS, "IQ2_XS", 256, 74},
                                               {GgmlType::kIQ3_XXS, "IQ3_XXS", 256, 98},
                                               {GgmlType::kIQ1_S, "IQ1_S", 256, 50},
                                               {GgmlType::kIQ4_NL, "IQ4_NL", 32, 18},
                                               {GgmlType::kIQ3_S, "IQ3_S", 256, 110},
                                               {GgmlType::kIQ2_S, "IQ2_S", 256, 82},
                                               {GgmlType::kIQ4_XS, "IQ4_XS", 256, 136},
                                               {GgmlType::kI8, "I8", 1, 1},
                                               {GgmlType::kI16, "I16", 1, 2},
                                               {GgmlType::kI32, "I32", 1, 4},
                                               {GgmlType::kI64, "I64", 1, 8},
                                               {GgmlType::kF64, "F64", 1, 8},
                                               {GgmlType::kIQ1_M, "IQ1_M", 256, 56},
                                               {GgmlType::kBF16, "BF16", 1, 2},
                                               {GgmlType::kTQ1_0, "TQ1_0", 256, 54},
                                               {GgmlType::kTQ2_0, "TQ2_0", 256, 66},
                                               {GgmlType::kMXFP4, "MXFP4", 32, 17}}};

}  // namespace

const GgmlTypeInfo* find_ggml_type(uint32_t id) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const GgmlTypeInfo& info) {
    return static_cast<uint32_t>(info.type) == id;
  });
  return found == kTypes.end() ? nullptr : found;
}

const GgmlTypeInfo& info_of(GgmlType type) {
  const GgmlTypeInfo* info = find_ggml_type(static_cast<uint32_t>(type));
  TEMPERA_CHECK(info, "no GGML type has the number ", static_cast<uint32_t>(type));
  return *info;
}

uint64_t ggml_bytes(GgmlType type, std::span<const int64_t> shape, std::string_view what) {
  const GgmlTypeInfo& info = info_of(type);
  const int64_t columns = shape.empty() ? 1 : shape.back();
  for (const int64_t size : shape)
    TEMPERA_CHECK(size >= 0, what, ": a dimension of ", size, " in the shape ", shape_text(shape));
  TEMPERA_CHECK(static_cast<uint64_t>(columns) % info.block_elements == 0, what, ": rows of ",
                columns, " elements; ", info.name, " needs a multiple of ", info.block_elements);
  // Both the elements and the bytes have to fit; and the rows, where a dimension is zero.
  uint64_t elements = 1, bytes = info.block_bytes;
  bool fits = true, empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto size = static_cast<uint64_t>(shape[i]);
    const uint64_t blocks = i + 1 == shape.size() ? size / info.block_elements : size;
    empty = empty || size == 0;
    fits = fits && !__builtin_mul_overflow(elements, size, &elements) &&
           !__builtin_mul_overflow(bytes, std::max<uint64_t>(blocks, 1), &bytes);
  }
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  TEMPERA_CHECK(fits && bytes <= kMost && elements <= kMost, what, ": the size of the shape ",
                shape_text(shape), " does not fit into 63 bits");
  return empty ? 0 : bytes;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tempera::io
