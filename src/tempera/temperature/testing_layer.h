#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/temperature/rows.h"
#include "tempera/temperature/state.h"

// A small attention layer for tests: projections, the method, QK-norm, the operator. Heads are
// grouped, and the rows that are scaled differ from the raw ones that a method reads.
namespace tempera {

inline LayerShape tiny_shape(AttentionKind kind = AttentionKind::kCausal) {
  return {.layers = 2,
          .layer = 1,
          .d_model = 24,
          .q_heads = 4,
          .kv_heads = 2,
          .qk_size = 16,
          .v_size = 24,
          .vocabulary = 7,
          .trained_length = 4,
          .kind = kind};
}

// Numbers that look random and are not: no test depends on the generator.
inline torch::Tensor pattern(torch::IntArrayRef sizes, double phase, torch::ScalarType type) {
  const int64_t count = c10::multiply_integers(sizes);
  const auto index = torch::arange(count, torch::kFloat64);
  return (1.7 * (index * 12.9898 + phase * 78.233).sin()).view(sizes).to(type);
}

class TinyLayer {
 public:
  TinyLayer(std::shared_ptr<Method> method, torch::ScalarType type)
      : method_(std::move(method)), type_(type) {
    const auto& shape = method_->shape();
    const auto weight = [&](int64_t rows, double phase) {
      return pattern({rows, shape.d_model}, phase, type) * 0.3;
    };
    wq_ = weight(shape.q_heads * shape.qk_size, 1);
    wk_ = weight(shape.kv_heads * shape.qk_size, 2);
    wv_ = weight(shape.kv_heads * shape.v_size, 3);
    method_->to(type);
    method_->set_token_counts(torch::arange(shape.vocabulary) * 3);
  }

  Method& method() { return *method_; }
  torch::ScalarType type() const { return type_; }

  torch::Tensor q(const torch::Tensor& x) const { return heads(x, wq_, method_->shape().qk_size); }
  torch::Tensor k(const torch::Tensor& x) const { return heads(x, wk_, method_->shape().qk_size); }
  torch::Tensor v(const torch::Tensor& x) const { return heads(x, wv_, method_->shape().v_size); }

  LayerInputs inputs(const torch::Tensor& x, const torch::Tensor& tokens, const RowCounts& counts) {
    const RowInfo rows{x, tokens, counts.n, counts.position};
    return {.queries = rows, .keys = rows, .q = q(x), .k = k(x), .v = v(x), .past = {}};
  }

  // Self-attention over whole sequences, (B, H, T, v_size).
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& tokens,
                        const SequenceMask& mask) {
    const auto in = inputs(x, tokens, sequence_rows(mask, x.size(0), x.size(1), x.device()));
    return attend(in, method_->forward(in), mask);
  }

  torch::Tensor attend(const LayerInputs& in, const RowScales& scales, const SequenceMask& mask) {
    ops::AttentionArgs args;
    args.q = normed(in.q);
    args.k = normed(in.k);
    args.v = in.v;
    args.key_counts = in.keys.n;
    args.documents = mask.documents;
    args.key_start = mask.start;
    args.key_end = mask.end;
    args.causal = mask.causal;
    args.window = mask.window;
    apply(scales, args);
    return ops::attention(args).out;
  }

  static torch::Tensor normed(const torch::Tensor& rows) {
    return rows * (rows.square().mean(-1, true) + 1e-6).rsqrt();
  }

 private:
  torch::Tensor heads(const torch::Tensor& x, const torch::Tensor& weight, int64_t size) const {
    return torch::linear(x, weight).view({x.size(0), x.size(1), -1, size}).transpose(1, 2);
  }

  std::shared_ptr<Method> method_;
  torch::ScalarType type_;
  torch::Tensor wq_, wk_, wv_;
};

// Decodes with a cache of keys, values, their scales and the method's state.
class TinyCache {
 public:
  TinyCache(TinyLayer& layer, int64_t batch, int64_t capacity, std::optional<int64_t> window)
      : layer_(&layer), window_(window), state_(batch, layer.method().state_width()) {
    const auto& shape = layer.method().shape();
    const auto options = torch::dtype(layer.type());
    k_ = torch::zeros({batch, shape.kv_heads, capacity, shape.qk_size}, options);
    v_ = torch::zeros({batch, shape.kv_heads, capacity, shape.v_size}, options);
    const auto scale_options = torch::dtype(scale_type(layer.type()));
    a_k_ = torch::ones({batch, shape.kv_heads, capacity}, scale_options);
    a_v_ = torch::ones({batch, shape.kv_heads, capacity}, scale_options);
  }

  // The outputs of the new rows.
  torch::Tensor step(const torch::Tensor& x, const torch::Tensor& tokens) {
    const int64_t rows = x.size(1);
    const auto lengths = torch::full({x.size(0)}, length_ + rows, torch::kInt32);
    auto in = layer_->inputs(x, tokens, decode_rows(lengths, rows, {}, window_));
    in.past = state_.last();
    const auto scales = layer_->method().forward(in);
    state_.append(scales.state);
    const auto type = scale_type(layer_->type());
    k_.narrow(2, length_, rows).copy_(TinyLayer::normed(in.k));
    v_.narrow(2, length_, rows).copy_(in.v);
    if (scales.k.present()) {
      a_k_.narrow(2, length_, rows).copy_(finish(scales.k, in.keys.n, type));
    }
    if (scales.v.present()) {
      a_v_.narrow(2, length_, rows).copy_(finish(scales.v, in.keys.n, type));
    }
    length_ += rows;

    ops::DecodeArgs args;
    args.q = TinyLayer::normed(in.q);
    args.k = k_;
    args.v = v_;
    args.lengths = lengths;
    args.a_q = scales.q.rows;
    args.q_recipe = scales.q.recipe;
    args.a_k = a_k_;
    args.a_v = a_v_;
    args.window = window_;
    return ops::decode(args).out;
  }

  void truncate(int64_t length) {
    length_ = length;
    state_.truncate(length);
  }

  TinyCache fork() const {
    TinyCache copy = *this;
    copy.state_ = state_.fork();
    for (auto* tensor : {&copy.k_, &copy.v_, &copy.a_k_, &copy.a_v_}) *tensor = tensor->clone();
    return copy;
  }

 private:
  TinyLayer* layer_;
  std::optional<int64_t> window_;
  MethodState state_;
  torch::Tensor k_, v_, a_k_, a_v_;
  int64_t length_ = 0;
};

}  // namespace tempera
