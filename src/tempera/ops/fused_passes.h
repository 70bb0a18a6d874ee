#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tempera/kernels/fused.h"
#include "tempera/ops/storage.h"

// The passes behind fused.h, of one device each: they fill tensors that the caller made, all
// contiguous and of that device, and know nothing of autograd.
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

struct FusedPasses {
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
extern const FusedPasses kCpuPasses;
extern const FusedPasses kCudaPasses;  // empty in a program without kernels

inline const FusedPasses& passes_of(const at::Tensor& x) {
  return x.is_cuda() ? kCudaPasses : kCpuPasses;
}

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
