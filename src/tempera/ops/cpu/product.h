#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tempera::ops {

// Whether a product of two float matrices on the CPU goes through kernels/product.h.
bool has_fast_product(int64_t rows, int64_t columns, int64_t depth);

}  // namespace tempera::ops
