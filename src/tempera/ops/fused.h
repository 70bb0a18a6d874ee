#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// The passes between the matrix products of a transformer as differentiable functions: fused for
// float32 and bfloat16 on the CPU (kernels/fused.h) and, where the program has the kernels, on a
// GPU (kernels/cuda), composed of libtorch's own elsewhere. Gains, biases and tables are float32
// there.
namespace tempera::ops {

// Over the last dimension: (x - mean) / sqrt(variance + epsilon) * gain + bias; not centred:
// RMSNorm. Undefined gain: 1, undefined bias: 0.
at::Tensor norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double epsilon,
                bool centred);

// h = x + residual and y = norm(h), fused in one pass.
struct NormedSum {
  at::Tensor h, y;
};
NormedSum add_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain,
                   const at::Tensor& bias, double epsilon, bool centred);

// The rows of a table (V, C) by their ids (any shape), in the given type.
at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids, at::ScalarType type);

// (..., 2 F) -> (..., F): silu of the first half times the second.
at::Tensor swiglu(const at::Tensor& gate_up);

// x times the normal distribution's share below it, or the usual approximation by tanh.
at::Tensor gelu(const at::Tensor& x, bool by_tanh);

// Rotates column c with column c + pairs of x (B, H, T, D) by the angle whose cosine and sine stand
// in row positions[b, t] (t where undefined) of the tables (length, pairs); columns from 2 pairs on
// stay.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const at::Tensor& positions = {});

// Mean cross-entropy of hidden (N, C) times weight^T (V, C) against targets (N), of which negative
// ones do not count; 0 where none counts. The logits are made a few rows at a time and never exist
// as a whole. shares (N) float32: how much each target counts, 0 or more; undefined: 1.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& targets, double label_smoothing = 0,
                                const at::Tensor& shares = {});

struct AdamWStep {
  double rate, beta1, beta2, epsilon, decay;
  int64_t step;                // from 1
  double gradient_factor = 1;  // of clipping
};
// Updates parameter, mean and square in place.
void adamw(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& mean,
           const at::Tensor& square, const AdamWStep& step);

}  // namespace tempera::ops
