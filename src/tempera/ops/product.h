#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tempera::ops {

// Whether a product of two float matrices on the CPU goes through kernels/product.h.
bool has_fast_product(int64_t rows, int64_t columns, int64_t depth);

// out = a b, or out += a b, of matrices: by that kernel where it is the faster way, else by
// libtorch. Below autograd.
void product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, bool add = false);

}  // namespace tempera::ops
