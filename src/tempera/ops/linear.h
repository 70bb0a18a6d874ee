#pragma once

#include <ATen/core/Tensor.h>

namespace tempera::ops {

// x (..., inputs) times weight^T (outputs, inputs) + bias (outputs; undefined: none), in the type
// of x, which the weight need not have. On the CPU few rows without gradients, a step of
// generation, go through kernels/matvec.h, and many through ops/product.h; the rest is libtorch's
// product.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace tempera::ops
