#pragma once

#include <cstdint>

#include "tempera/kernels/attention.h"

// Few rows times a large matrix: a step of generation. The matrix is read once, at the speed of the
// memory, whatever the number of rows.
namespace tempera::kernels {

// y (rows, outputs) = x (rows, inputs) times weight^T + bias, weight (outputs, inputs). X and W are
// float or BFloat16 each; arithmetic is in float. Columns are contiguous, strides count elements.
template <class X, class W>
struct MatvecParams {
  int64_t rows = 0, inputs = 0, outputs = 0;
  const X* x = nullptr;
  int64_t x_stride = 0;
  const W* weight = nullptr;
  int64_t weight_stride = 0;
  const W* bias = nullptr;  // (outputs); absent: 0
  X* y = nullptr;
  int64_t y_stride = 0;
};

// An output depends on its own row of x and of the weight alone: neither the number of workers nor
// the other rows change a bit of it.
template <class X, class W>
void matvec(const MatvecParams<X, W>& params, Parallel& parallel);

}  // namespace tempera::kernels
