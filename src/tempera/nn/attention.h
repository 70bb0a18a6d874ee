#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tempera/nn/cache.h"
#include "tempera/nn/config.h"
#include "tempera/nn/context.h"
#include "tempera/nn/inspection.h"
#include "tempera/nn/layers.h"
#include "tempera/nn/positions.h"
#include "tempera/ops/projected.h"
#include "tempera/temperature/method.h"
#include "tempera/temperature/rows.h"

namespace tempera::nn {

// The rows of one sequence side, as all layers see them.
struct SequenceRows {
  SequenceMask mask;
  RowCounts counts;        // made from the mask, without a window
  torch::Tensor window_n;  // (B, T): n of the layers that have a window
  torch::Tensor tokens;    // (B, T)
  // The rows have positions of their own: n counts keys that are not there.
  bool spread = false;
  torch::Tensor attention_scale = {};  // (B, 1, T): of the queries; undefined: 1
};

// The other sequence of a cross-attention.
struct Source {
  torch::Tensor x;  // (B, Tk, width)
  SequenceRows rows;
};

// Where the rows are some of their sequences': the keys of all that each one sees.
struct SharedRows {
  const ContextShare* share = nullptr;  // null: all rows are here
  torch::Tensor begin, end;             // (B, rows), on the CPU
  torch::Tensor window_begin;           // of the layers that have a window
};

// What the layers of one pass share.
struct Pass {
  SequenceRows rows;
  Angles angles;
  torch::Tensor bias;                           // of the logits; undefined: none
  torch::Tensor lengths = {};                   // (B) int32: rows of the cache, these included
  std::optional<uint64_t> dropout_seed = {};    // unset: no dropout
  std::shared_ptr<Inspection> inspection = {};  // filled by every layer in turn
  std::shared_ptr<const Source> source = {};    // of the cross-attentions; not with a cache
  SharedRows shared = {};
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
  const torch::Tensor& counts(const SequenceRows& rows) const {
    return options_.window ? rows.window_n : rows.counts.n;
  }
  RowInfo cross_queries(const torch::Tensor& x, const Pass& pass, const SequenceMask& source,
                        int64_t source_rows) const;
  ops::AttentionArgs limits(const Pass& pass) const;
  ops::ProjectedArgs arguments(const Pass& pass) const;
  ops::ProjectedArgs cross_arguments(const torch::Tensor& x, const Pass& pass,
                                     const SequenceMask& source) const;
  void set_source(ops::ProjectedArgs& args, const torch::Tensor& source) const;
  RowScales set_scales(ops::ProjectedArgs& args, const RowInfo& queries, const RowInfo& keys,
                       const torch::Tensor& past = {}, const RowShare* share = nullptr);
  torch::Tensor attend_shared(ops::ProjectedArgs& args, const RowInfo& rows, const Pass& pass);
  torch::Tensor attend(ops::ProjectedArgs& args, const RowInfo& queries, const RowInfo& keys,
                       const Pass& pass);
  torch::Tensor merged(const torch::Tensor& out) const;

  AttentionOptions options_;
  std::shared_ptr<Method> method_;
  std::shared_ptr<Linear> qkv_;     // self-attention
  std::shared_ptr<Linear> q_, kv_;  // cross-attention
  std::shared_ptr<Linear> out_;
  torch::Tensor q_gain_, k_gain_;
};

}  // namespace tempera::nn
