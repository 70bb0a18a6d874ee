#pragma once

#include <ATen/core/Tensor.h>

#include "tempera/ops/attention.h"

namespace tempera::ops {

// (B, heads, pairs): a number of the rows (B, heads, T) for each pair (B, pairs).
at::Tensor at_pairs(const at::Tensor& rows, const at::Tensor& index);

// (B, H, pairs): the weights of the rows on the keys, exact from q, k and the rows' normaliser
// lse: no row of weights is made. The scales are finished, (B, heads, T), or undefined; those of
// args are not read.
struct PairScales {
  at::Tensor q, k;
};
at::Tensor pair_weights(const AttentionArgs& args, const at::Tensor& lse, const PairScales& scales,
                        const at::Tensor& rows, const at::Tensor& keys);

}  // namespace tempera::ops
