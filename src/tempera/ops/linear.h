#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace tempera::ops {

// x (..., inputs) times weight^T (outputs, inputs) + bias (outputs; undefined: none), in the type
// of x, which the weight need not have. On the CPU few rows without gradients, a step of
// generation, go through kernels/matvec.h, and many through ops/product.h; the rest is libtorch's
// product.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// While one lives, the bits of a row that linear() gives in this thread do not depend on the rows
// beside it. On the CPU, without gradients; many rows take longer.
class RowInvariance {
 public:
  RowInvariance();
  ~RowInvariance();
  RowInvariance(const RowInvariance&) = delete;
  RowInvariance& operator=(const RowInvariance&) = delete;

  static bool wanted();
};

// f(x) of x (B, ...) for what torch computes in another order, or by another function, in longer
// tensors: each sequence by itself while a RowInvariance lives.
at::Tensor by_sequence(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f);

}  // namespace tempera::ops
