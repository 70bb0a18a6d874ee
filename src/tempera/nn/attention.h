#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tempera/nn/cache.h"
#include "tempera/nn/config.h"
#include "tempera/nn/layers.h"
#include "tempera/nn/positions.h"
#include "tempera/temperature/method.h"
#include "tempera/temperature/rows.h"

namespace tempera::nn {

// The rows of one sequence side, as all layers see them.
struct Rows {
  SequenceMask mask;
  RowCounts counts;        // made from the mask, without a window
  torch::Tensor window_n;  // (B, T): n of the layers that have a window
  torch::Tensor tokens;    // (B, T)
};

// What one attention layer did, for chosen pairs of a query row and a key.
struct LayerInspection {
  torch::Tensor weight;         // (B, H, pairs): the attention weight of the row on the key;
                                // undefined where it is not of the kind that was asked for
  torch::Tensor entropy;        // (B, H, pairs): of all weights of the row, in nats; likewise
  torch::Tensor a_q, a_k, a_v;  // (heads): mean scale over all rows that are no padding
};

struct Inspection {
  torch::Tensor rows, keys;  // (B, pairs) int64: which weights are wanted
  std::vector<LayerInspection> layers;
  bool cross = false;  // weights of the cross-attentions, not of the self-attentions
};

// The other sequence of a cross-attention.
struct Source {
  torch::Tensor x;  // (B, Tk, width)
  Rows rows;
};

// What the layers of one pass share.
struct Pass {
  Rows rows;
  Angles angles;
  torch::Tensor bias;                           // of the logits; undefined: none
  torch::Tensor lengths = {};                   // (B) int32: rows of the cache, these included
  std::optional<uint64_t> dropout_seed = {};    // unset: no dropout
  std::shared_ptr<Inspection> inspection = {};  // filled by every layer in turn
  std::shared_ptr<const Source> source = {};    // of the cross-attentions; not with a cache
};

struct AttentionOptions {
  int64_t width = 0;
  AttentionBias bias = AttentionBias::kNone;
  QkNorm qk_norm = QkNorm::kNone;
  double norm_eps = 1e-6;
  double dropout = 0;
  std::optional<int64_t> window = {};
  double scale = 0;  // 0: 1 / sqrt(qk_size)
  double cap = 0;    // 0: none
  LoraConfig lora = {};
};

// Projections, temperature, QK-norm, rotary map, the attention operator and the output projection.
// The method's shape says heads, sizes and the kind: causal and bidirectional self-attention and
// cross-attention are the same code with another source of keys.
class Attention final : public torch::nn::Module {
 public:
  Attention(const AttentionOptions& options, std::shared_ptr<Method> method);

  // Self-attention over x (B, T, width). With a cache, x are the rows behind those in it, which are
  // added.
  torch::Tensor forward(const torch::Tensor& x, const Pass& pass, LayerCache* cache = nullptr);
  // Cross-attention of x to the source.
  torch::Tensor forward(const torch::Tensor& x, const Pass& pass, const Source& source);
  // The same with a cache that holds the source: remember() puts it there, and forward_cached()
  // adds what the method keeps of the rows x.
  void remember(const Source& source, LayerCache& cache);
  torch::Tensor forward_cached(const torch::Tensor& x, const Pass& pass, const SequenceMask& source,
                               LayerCache& cache);

  Method& method() { return *method_; }

 private:
  torch::Tensor head_norm(const torch::Tensor& rows, const torch::Tensor& gain) const;
  RowInfo cross_queries(const torch::Tensor& x, const Pass& pass, const SequenceMask& source,
                        int64_t source_rows) const;
  LayerInputs cross_inputs(const RowInfo& queries, const Source& source) const;
  torch::Tensor attend(const LayerInputs& inputs, const Pass& pass, const Rows& keys);
  // Whether norms, rotation, temperatures and layout are one pass over this projection.
  bool has_prologue(const torch::Tensor& qkv, const Pass& pass) const;
  torch::Tensor attend_projected(const torch::Tensor& qkv, const RowInfo& rows, const Pass& pass);
  void set_mask(ops::AttentionArgs& args, const Pass& pass, const Rows& keys) const;
  torch::Tensor attend_cached(const LayerInputs& inputs, const Pass& pass, LayerCache& cache);
  const torch::Tensor& counts(const Rows& rows) const {
    return options_.window ? rows.window_n : rows.counts.n;
  }
  ops::AttentionArgs limits(const Pass& pass) const;
  ops::AttentionArgs arguments(const LayerInputs& inputs, const Pass& pass) const;
  torch::Tensor merged(const torch::Tensor& out) const;

  AttentionOptions options_;
  std::shared_ptr<Method> method_;
  std::shared_ptr<Linear> qkv_;     // self-attention
  std::shared_ptr<Linear> q_, kv_;  // cross-attention
  std::shared_ptr<Linear> out_;
  torch::Tensor q_gain_, k_gain_;
};

}  // namespace tempera::nn
