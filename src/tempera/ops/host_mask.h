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

// The part of a cache that is in use.
struct HostCache {
  at::Tensor lengths;              // (B) int32
  at::Tensor block_table;          // (B, n) int32; undefined: contiguous
  std::vector<int32_t> key_begin;  // (B, query rows); empty: no padding
  kernels::Mask mask;  // without query_offset, which is every sequence's own: length - query rows
};

// Reads lengths, blocks and padding. Throws tempera::Error where they reach beyond the cache.
HostCache host_cache(const DecodeArgs& args, const kernels::Shape& shape);
// What every query row sees, (B, query rows).
std::vector<kernels::KeyRange> visible_keys(const HostCache& cache, const kernels::Shape& shape);

std::vector<int64_t> host_numbers(const at::Tensor& tensor);

}  // namespace tempera::ops
