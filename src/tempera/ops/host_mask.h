#pragma once

#include <vector>

#include "tempera/kernels/mask.h"
#include "tempera/ops/attention.h"

namespace tempera::ops {

// A mask and the ranges that it points at.
struct HostMask {
  kernels::VisibleRanges ranges;
  kernels::Mask mask;
};

// Reads documents and padding. Throws tempera::Error where they do not fit the rows.
HostMask host_mask(const AttentionArgs& args, const kernels::Shape& shape);

std::vector<int64_t> host_numbers(const at::Tensor& tensor);

}  // namespace tempera::ops
