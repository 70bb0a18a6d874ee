#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tempera/kernels/mask.h"
#include "tempera/ops/attention.h"

// Attention by torch's own operators, with any mask, the scales applied.
namespace tempera::ops {

// A row of queries sees the keys [first, last), each (B, 1, query rows, 1).
struct VisibleKeys {
  at::Tensor first, last;
  at::Tensor log_n;  // (B, query rows)

  VisibleKeys rows(int64_t from, int64_t count) const {
    return {first.narrow(2, from, count), last.narrow(2, from, count), {}};
  }
  // (B, 1, query rows, 1): the row sees nothing.
  at::Tensor none() const { return last.le(first); }
  // (B, 1, query rows, key rows): for a few rows, since for all of them it may not fit.
  at::Tensor seen(int64_t key_rows) const {
    const at::Tensor key = at::arange(key_rows, first.options());
    return key.ge(first).logical_and(key.lt(last));
  }
};

// ranges: (B, query rows).
VisibleKeys visible(const std::vector<kernels::KeyRange>& ranges, const kernels::Shape& shape,
                    const at::Tensor& q);
std::vector<kernels::KeyRange> visible_keys(const kernels::Mask& mask, const kernels::Shape& shape);

struct MaskedInputs {
  at::Tensor q, k, v, bias;
};

// By one of torch's kernels that never hold the logits of all rows: left alone with groups of
// heads, or with rows that are no whole vectors, torch takes the one that does. mask: what is
// visible, or logits to add; undefined: every key, or those before where causal.
at::Tensor library_attention(const MaskedInputs& in, const at::Tensor& mask, bool causal,
                             std::optional<double> scale);

// Some rows at a time where a mask for all of them is large.
at::Tensor masked_attention(const MaskedInputs& in, const VisibleKeys& keys,
                            std::optional<double> scale);

// lse, entropy and the largest logit (B, H, query rows) of rows and keys that have had their
// scales.
struct Statistics {
  at::Tensor lse, entropy, max;
};
Statistics statistics(const MaskedInputs& in, const VisibleKeys& keys, std::optional<double> scale);

}  // namespace tempera::ops
