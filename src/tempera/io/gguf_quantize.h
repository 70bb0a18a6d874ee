#pragma once

#include <cstddef>

#include "tempera/io/ggml_type.h"

namespace tempera::io {

inline constexpr size_t kLargeBlock = 256;

// 256 finite values as a block of Q4_K, Q5_K or Q6_K. False: a scale would be infinite.
bool quantize_large_block(GgmlType type, const float* values, std::byte* out);

}  // namespace tempera::io
