#pragma once

#include <cstdint>

#include "tempera/base/parallel.h"

// The product of two large matrices of floats: many rows times a weight, and the gradients of that.
namespace tempera::kernels {

// C (rows, columns) = A (rows, depth) times B (depth, columns), or C += that. Strides count
// elements.
struct ProductParams {
  int64_t rows = 0, columns = 0, depth = 0;
  const float* a = nullptr;  // A[r][k] = a[r * a_row + k * a_depth]
  int64_t a_row = 0, a_depth = 1;
  const float* b = nullptr;  // B[k][c] = b[k * b_depth + c * b_column]; one of the two is 1
  int64_t b_depth = 0, b_column = 1;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;
};

// Whether this processor's vectors make product the better choice than a library that is made for
// those of another maker. docs/performance.md has the measurement.
bool has_fast_product();

// Floats of scratch memory for product.
int64_t product_workspace(const ProductParams& params);

// An element depends on its own row of A and its own column of B alone: the number of workers does
// not change a bit of it.
void product(const ProductParams& params, Parallel& parallel, float* workspace);

}  // namespace tempera::kernels
