#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tempera/temperature/row_share.h"
#include "tempera/temperature/scale.h"
#include "tempera/temperature/shape.h"

// A temperature method says how the row scales a_q, a_k, a_v of attention come from the layer's
// input. It never touches the attention itself: its owner applies the scales after QK-norm and
// RoPE.
namespace tempera {

// The rows of one side, queries or keys. n and position follow from the mask (see rows.h).
struct RowInfo {
  torch::Tensor x;       // (B, T, d_model): the layer's input after its norm
  torch::Tensor tokens;  // (B, T) int64; only where reads_tokens()
  torch::Tensor n;  // (B, T) int64: how many keys the row can see, as a query of its own sequence
  torch::Tensor position;  // (B, T) int64: from 0 inside the row's document; -1: padding
};

struct LayerInputs {
  RowInfo queries;
  RowInfo keys;     // self-attention: the same rows as the queries
  torch::Tensor q;  // (B, H, Tq, qk_size): raw projections, before QK-norm and RoPE
  torch::Tensor k;  // (B, Hkv, Tk, qk_size)
  torch::Tensor v;  // (B, Hkv, Tk, v_size)
  // (B, state_width()): what the method kept of the row before the first one here; undefined where
  // nothing came before.
  torch::Tensor past;
  // The rows are some of their sequences', whose others are elsewhere; null: they are all there.
  const RowShare* share = nullptr;
};

struct RowScales {
  RowScale q, k, v;
  // (B, Tq, state_width()) float64: what to keep of every query row beside its keys and values.
  // Undefined at width 0.
  torch::Tensor state;
};

// Hands the scales to an attention call whose q, k and v are set. Beside them it needs the mask
// that n was made from, and key_counts = n of the keys.
void apply(const RowScales& scales, ops::AttentionArgs& args);

// Scales that are constant per head, each (heads); undefined: 1. They can be folded into W_q, W_k,
// W_v.
struct HeadScales {
  torch::Tensor q, k, v;
};

// The parameters of a method draw no random numbers, so that models with different methods start
// from the same weights.
class Method : public torch::nn::Module {
 public:
  explicit Method(const LayerShape& shape) : shape_(shape) {}

  virtual RowScales forward(const LayerInputs& inputs) = 0;

  // Numbers a position that cached decoding needs of the rows before (state.h keeps them).
  virtual int64_t state_width() const { return 0; }
  // False: a row's scale depends on rows after it, so that decoding with a cache cannot reproduce
  // it.
  virtual bool cacheable() const { return true; }
  virtual bool reads_tokens() const { return false; }
  // How often each token occurs in the training corpus, (vocabulary); methods that do not care
  // ignore it.
  virtual void set_token_counts(const torch::Tensor& counts);
  // Set when the scales are one number a head.
  virtual std::optional<HeadScales> constant() const { return std::nullopt; }

  const LayerShape& shape() const { return shape_; }
  // One for a plain method, several for a composition.
  const std::vector<MethodSpec>& specs() const { return specs_; }
  void set_specs(std::vector<MethodSpec> specs) { specs_ = std::move(specs); }
  int64_t parameter_count() const;
  // By name, of the method's own parameters: the share of the learning rate that suits each where
  // it is learned beside frozen weights.
  const std::map<std::string, double>& rates() const { return rates_; }

 protected:
  // What the share depends on.
  static constexpr double kActsOnAHead = 1;
  static constexpr double kInADotProduct = 0.1;  // over the columns of a row
  static constexpr double kTimesLogN = 1.0 / 8;  // which is about 8 at thousands of keys

  torch::Tensor add_parameter(const std::string& name, const torch::Tensor& start, double rate);

 private:
  LayerShape shape_;
  std::vector<MethodSpec> specs_;
  std::map<std::string, double> rates_;
};

// A method whose scales are one number a head, computed by the kernel in its own pass.
class ConstantMethod : public Method {
 public:
  using Method::Method;

  RowScales forward(const LayerInputs& inputs) final;
  std::optional<HeadScales> constant() const final;

 protected:
  // Numbers that are no parameters are made with these options.
  virtual HeadScales head_scales(const torch::TensorOptions& options) const = 0;
};

}  // namespace tempera
