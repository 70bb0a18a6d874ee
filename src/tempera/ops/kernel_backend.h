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

// The passes over memory of one device, which fill tensors that are all contiguous and of that
// device. None of them is differentiable.
struct Passes {
  // Whether the passes take rows of so many columns, and whether the norm takes these.
  bool (*takes_rows)(const at::Tensor& x, int64_t columns);
  bool (*takes_norm)(const at::Tensor& x);

  void (*norm_forward)(const NormInputs& in, const NormOutputs& out);
  // in.x is the sum that was normed.
  void (*norm_backward)(const NormInputs& in, const NormGradients& gradients);
  void (*swiglu_forward)(const at::Tensor& gate_up, const at::Tensor& y);
  void (*swiglu_backward)(const at::Tensor& gate_up, const at::Tensor& d_y,
                          const at::Tensor& d_gate_up);
  // Rows whose logits are made at a time.
  int64_t (*logit_rows)(int64_t rows, int64_t classes);
  // 1 over the number of targets that count, or 1.
  at::Tensor (*target_factor)(const at::Tensor& targets);
  // The loss of every row; with gradient, the logits become their gradients.
  void (*cross_entropy)(const LossInputs& in, const at::Tensor& loss, bool gradient);
  // factor times the sum.
  at::Tensor (*scaled_sum)(const at::Tensor& loss, const at::Tensor& factor);
};

// What the devices with kernels share: the operations as differentiable functions over passes.
class KernelBackend : public Composed {
 public:
  explicit KernelBackend(const Passes& passes) : passes_(passes) {}

  AttentionResult attention(const AttentionArgs& args) const override;
  at::Tensor norm(const at::Tensor& x, const NormWeights& weights) const override;
  NormedSum add_norm(const at::Tensor& x, const at::Tensor& residual,
                     const NormWeights& weights) const override;
  at::Tensor swiglu(const at::Tensor& gate_up) const override;
  at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                  const at::Tensor& targets, double label_smoothing,
                                  const at::Tensor& shares) const override;

  const Passes& passes() const { return passes_; }
  // out = a b, or out += a b, of matrices. Below autograd.
  virtual void product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                            bool add) const;

 private:
  const Passes& passes_;
};

inline int64_t row_count(const at::Tensor& x) { return x.size(-1) ? x.numel() / x.size(-1) : 0; }

template <class T>
kernels::NormParams<T> norm_params(const NormInputs& in) {
  return {.rows = row_count(in.x),
          .size = in.x.size(-1),
          .x = memory<T>(in.x),
          .residual = memory<T>(in.residual),
          .gain = memory<float>(in.gain),
          .bias = memory<float>(in.bias),
          .epsilon = static_cast<float>(in.epsilon),
          .centred = in.centred};
}
template <class T>
kernels::NormOutputs<T> norm_outputs(const NormOutputs& out) {
  return {.h = memory<T>(out.h),
          .y = memory<T>(out.y),
          .mean = memory<float>(out.mean),
          .rstd = memory<float>(out.rstd)};
}
template <class T>
kernels::NormGradients<T> norm_gradients(const NormGradients& g) {
  return {.mean = memory<float>(g.mean),
          .rstd = memory<float>(g.rstd),
          .d_y = memory<T>(g.d_y),
          .d_h = memory<T>(g.d_h),
          .d_x = memory<T>(g.d_x),
          .d_gain = memory<float>(g.d_gain),
          .d_bias = memory<float>(g.d_bias)};
}

}  // namespace tempera::ops
