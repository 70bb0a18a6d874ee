#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tempera/ops/blocks.h"

namespace tempera::ops {

// linear() where the matrix of these sizes is made of blocks.
at::Tensor linear_of_blocks(const at::Tensor& x, const std::vector<WeightBlocks>& parts,
                            at::IntArrayRef sizes, const at::Tensor& bias);

}  // namespace tempera::ops
