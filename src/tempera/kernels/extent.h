#pragma once

#include "tempera/kernels/attention.h"

namespace tempera::kernels {

// The dimensions of what a Rows points to.
struct Extent {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t size = 0;  // columns

  bool empty() const { return batch == 0 || heads == 0 || rows == 0 || size == 0; }
  int64_t count() const { return batch * heads * rows * size; }
};

inline Extent query_extent(const Shape& shape, int64_t size) {
  return {shape.batch, shape.q_heads, shape.q_rows, size};
}
inline Extent key_extent(const Shape& shape, int64_t size) {
  return {shape.batch, shape.kv_heads, shape.kv_rows, size};
}

}  // namespace tempera::kernels
