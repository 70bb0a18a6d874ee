#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tempera/io/ggml_type.h"

// Matrices that stay in the blocks of a file, for inference on the CPU: the weights of linear() and
// embedding().
namespace tempera::ops {

// Some rows of a matrix, one behind the other in blocks of their type.
struct WeightBlocks {
  io::GgmlType type = io::GgmlType::kQ8_0;
  int64_t rows = 0;
  std::span<const std::byte> bytes = {};
  std::vector<int64_t> place = {};  // of each among these rows; empty: as they come
};

// Whether the product is computed on blocks of the type.
bool computes_on(io::GgmlType type);

// A tensor (rows of all parts, columns) that gives its bytes to linear() and embedding() alone: any
// other operation on it throws. `owner` keeps the bytes alive.
at::Tensor block_tensor(std::vector<WeightBlocks> parts, int64_t columns,
                        std::shared_ptr<const void> owner);

// Null where a tensor is none of these.
const std::vector<WeightBlocks>* blocks_of(const at::Tensor& tensor);

}  // namespace tempera::ops
