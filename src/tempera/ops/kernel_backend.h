#pragma once

#include <cstdint>

#include "tempera/kernels/fused.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/storage.h"

namespace tempera::ops {

// Gain and bias are float32, or undefined. Without a residual there is no h.
struct NormInputs {
  at::Tensor x, residual, gain, bias;
  double epsilon = 0;
  bool centred = false;
};
struct NormOutputs {
  at::Tensor h, y;        // like x
  at::Tensor mean, rstd;  // float32 of every row; mean: undefined where it is not centred
};
struct NormGradients {
  at::Tensor mean, rstd, d_y;
  at::Tensor d_h;                  // what goes past the norm; undefined: nothing
  at::Tensor d_x, d_gain, d_bias;  // the results; undefined: not wanted
};

struct LossInputs {
  at::Tensor logits, targets;  // (N, V), (N)
  at::Tensor factor;           // () float32, of the gradients
  double smoothing = 0;
};

// What the devices with kernels share: the operations as differentiable functions over passes that
// fill tensors made here, all contiguous and of that device.
class KernelBackend : public Composed {
 public:
  AttentionResult attention(const AttentionArgs& args) const override;
  at::Tensor norm(const at::Tensor& x, const NormWeights& weights) const override;
  NormedSum add_norm(const at::Tensor& x, const at::Tensor& residual,
                     const NormWeights& weights) const override;
  at::Tensor swiglu(const at::Tensor& gate_up) const override;
  at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                  const at::Tensor& targets, double label_smoothing) const override;

  // Whether the passes take rows of so many columns, and whether the norm takes these.
  virtual bool takes_rows(const at::Tensor& x, int64_t columns) const = 0;
  virtual bool takes_norm(const at::Tensor& x) const = 0;

  virtual void norm_forward(const NormInputs& in, const NormOutputs& out) const = 0;
  // in.x is the sum that was normed.
  virtual void norm_backward(const NormInputs& in, const NormGradients& gradients) const = 0;
  virtual void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& y) const = 0;
  virtual void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& d_y,
                               const at::Tensor& d_gate_up) const = 0;
  // Rows whose logits are made at a time.
  virtual int64_t logit_rows(int64_t rows, int64_t classes) const = 0;
  // 1 over the number of targets that count, or 1.
  virtual at::Tensor target_factor(const at::Tensor& targets) const = 0;
  // The loss of every row; with gradient, the logits become their gradients.
  virtual void cross_entropy(const LossInputs& in, const at::Tensor& loss, bool gradient) const = 0;
  // factor times the sum.
  virtual at::Tensor scaled_sum(const at::Tensor& loss, const at::Tensor& factor) const = 0;
  // out = a b, or out += a b, of matrices. Below autograd.
  virtual void product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                            bool add) const;
};

inline int64_t row_count(const at::Tensor& x) { return x.size(-1) ? x.numel() / x.size(-1) : 0; }

template <class T>
kernels::NormParams<T> norm_params(const NormInputs& in) {
  return {row_count(in.x),
          in.x.size(-1),
          memory<T>(in.x),
          memory<T>(in.residual),
          memory<float>(in.gain),
          memory<float>(in.bias),
          static_cast<float>(in.epsilon),
          in.centred};
}

}  // namespace tempera::ops
