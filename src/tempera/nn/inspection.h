#pragma once

#include <torch/types.h>

#include <vector>

#include "tempera/temperature/method.h"

namespace tempera::nn {

// What one attention layer did, for chosen pairs of a query row and a key.
struct LayerInspection {
  torch::Tensor weight;         // (B, H, pairs): the attention weight of the row on the key;
                                // undefined where it is not of the kind that was asked for
  torch::Tensor entropy;        // (B, H, pairs): of all weights of the row, in nats; likewise
  torch::Tensor a_q, a_k, a_v;  // (heads): mean scale over all rows that are no padding
  // (H) over the same rows, where no pairs were asked for: the mean entropy of a row's weights in
  // nats, and the largest logit.
  torch::Tensor mean_entropy, largest;
};

struct Inspection {
  torch::Tensor rows, keys;  // (B, pairs) int64: which weights are wanted; undefined: none, but
                             // what all rows do together
  std::vector<LayerInspection> layers;
  bool cross = false;  // weights of the cross-attentions, not of the self-attentions
};

// The mean scales of a layer; no weight and no entropy.
LayerInspection inspect_scales(const RowScales& scales, const RowInfo& queries,
                               const RowInfo& keys);
// What all rows do together, from the entropy and the largest logit of each, (B, H, T).
void add_rows(LayerInspection& layer, const torch::Tensor& entropy, const torch::Tensor& largest,
              const RowInfo& queries);

}  // namespace tempera::nn
