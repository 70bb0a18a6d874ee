#pragma once

#include <array>
#include <functional>
#include <optional>

#include "tempera/ops/backend.h"

namespace tempera::ops {

// One of q, k and v with its temperature, for scale_rows().
struct Tempered {
  at::Tensor operand;
  RowScale scale;
  std::function<at::Tensor()> log_n;  // gives (B, rows)
};

// Written with torch's own operators, for any device and type. Scales are multiplied to q, k and v
// in front of torch's attention. Throws tempera::Error for what that cannot do. A backend with
// kernels overrides what they take, and comes here for the rest.
class Composed : public Backend {
 public:
  // Gives `out`, and with want_entropy lse and entropy.
  AttentionResult attention(const AttentionArgs& args) const override;
  AttentionResult decode(const DecodeArgs& args) const override;
  ProjectedResult attend(const ProjectedArgs& args, KeyCache* cache) const override;
  void remember(const ProjectedArgs& args, KeyCache& cache) const override;

  at::Tensor norm(const at::Tensor& x, const NormWeights& weights) const override;
  NormedSum add_norm(const at::Tensor& x, const at::Tensor& residual,
                     const NormWeights& weights) const override;
  at::Tensor swiglu(const at::Tensor& gate_up) const override;
  at::Tensor gelu(const at::Tensor& x, bool by_tanh) const override;
  at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids,
                       at::ScalarType type) const override;
  at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& positions) const override;
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias) const override;
  at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                  const at::Tensor& targets, double label_smoothing,
                                  const at::Tensor& shares) const override;
  void adamw(const AdamWState& state, const AdamWStep& step) const override;

  // 1 over the sum of the shares whose targets count, or 1.
  static at::Tensor shares_factor(const at::Tensor& targets, const at::Tensor& shares);

  bool has_kernel(const AttentionArgs& args) const override;
  AttentionResult attention_forward(const AttentionArgs& args) const override;
  std::vector<at::Tensor> attention_backward(const BackwardArgs& args) const override;

 protected:
  static void scale(Tempered& part);
  // Multiplies the scales to their operands. causal: all have the same rows, of which row t sees
  // t + 1 keys.
  virtual void scale_rows(std::array<Tempered, 3>& parts, bool causal) const;
  // Rows (B, heads, T, size) as whole numbers of the type int8, and what to multiply them with.
  struct Quantized {
    at::Tensor rows, factor;  // (B, heads, T)
  };
  virtual Quantized quantized(const at::Tensor& rows) const;
  virtual at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     bool causal, std::optional<double> scale) const;

 private:
  AttentionArgs prepared(const ProjectedArgs& args) const;
  at::Tensor head_norm(const at::Tensor& rows, const at::Tensor& gain,
                       const ProjectedArgs& args) const;
  void append(const ProjectedArgs& args, const AttentionArgs& ready, KeyCache& cache) const;
  AttentionResult attend_cached(const ProjectedArgs& args, const AttentionArgs& ready,
                                KeyCache& cache) const;
};

const Composed& composed_backend();

// Whether libtorch's fused attention can do it: every key or plain causality, nothing but scales on
// the logits, and `out` alone wanted.
bool is_plain(const AttentionArgs& args);

}  // namespace tempera::ops
