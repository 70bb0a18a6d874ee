#pragma once

#include <cstdint>

#include "tempera/kernels/attention.h"

// The passes over memory between the matrix products of a transformer, each done once: norms, gated
// activations, rotation, cross-entropy, AdamW. For T = float and BFloat16; arithmetic is in float.
// Rows are contiguous and follow each other. Results do not depend on the number of workers.
namespace tempera::kernels {

// y = (h - mean) * rstd * gain + bias of h = x + residual; the mean is 0 where the norm is not
// centred (RMSNorm).
template <class T>
struct NormParams {
  int64_t rows = 0;
  int64_t size = 0;
  const T* x = nullptr;
  const T* residual = nullptr;  // absent: 0, and x is h
  const float* gain = nullptr;  // absent: 1
  const float* bias = nullptr;  // absent: 0
  float epsilon = 0;
  bool centred = false;
};

// mean and rstd are what the backward pass needs.
template <class T>
struct NormOutputs {
  T* h = nullptr;  // required with a residual; the norm reads h as it was rounded to T
  T* y = nullptr;
  float* mean = nullptr;  // (rows); where centred
  float* rstd = nullptr;  // (rows)
};
template <class T>
void norm_forward(const NormParams<T>& params, const NormOutputs<T>& outputs, Parallel& parallel);

template <class T>
struct NormGradients {
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const T* d_y = nullptr;
  const T* d_h = nullptr;   // what reaches h past the norm; absent: 0
  T* d_x = nullptr;         // of h, and so of x and of the residual
  float* d_gain = nullptr;  // absent, like d_bias: not wanted
  float* d_bias = nullptr;
};
// Floats of workspace for the backward pass.
int64_t norm_backward_workspace(int64_t size);
// params.x: h of the forward pass (x where there was no residual); params.residual is not read.
template <class T>
void norm_backward(const NormParams<T>& params, const NormGradients<T>& gradients,
                   Parallel& parallel, float* workspace);

// y = silu(gate) * up, where a row of gate_up is the gate's `size` columns and then up's.
template <class T>
struct SwigluParams {
  int64_t rows = 0;
  int64_t size = 0;  // columns of y
  const T* gate_up = nullptr;
};
template <class T>
void swiglu_forward(const SwigluParams<T>& params, T* y, Parallel& parallel);
template <class T>
void swiglu_backward(const SwigluParams<T>& params, const T* d_y, T* d_gate_up, Parallel& parallel);

// Rotates the first 2 * pairs columns of every row: column c with column c + pairs, by the angle of
// (row, c). The rest is copied. x and y are Rows over (batch, head, row); cos and sin are (rows,
// pairs), of which row r uses table_row[b * rows + r], or r where that is absent.
template <class T>
struct RotaryParams {
  int64_t batch = 0, heads = 0, rows = 0, size = 0, pairs = 0;
  Rows<const T> x;
  Rows<T> y;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int64_t* table_row = nullptr;
  bool inverse = false;  // the other way round: the backward pass
};
template <class T>
void rotary(const RotaryParams<T>& params, Parallel& parallel);

// Rows of whole numbers: x = factor * y, where the largest number of a row is 127 or -127. A row
// that is not finite has a NaN as its factor.
template <class T>
struct QuantizeParams {
  int64_t batch = 0, heads = 0, rows = 0, size = 0;
  Rows<const T> x;
  Rows<int8_t> y;
  Rows<float> factor;  // one column
};
template <class T>
void quantize(const QuantizeParams<T>& params, Parallel& parallel);

// The cross-entropy of every row of logits against its target, with label smoothing, and in place
// of the logits the gradient times `factor`. A row whose target is negative has loss 0 and gradient
// 0.
template <class T>
struct CrossEntropyParams {
  int64_t rows = 0;
  int64_t classes = 0;
  T* logits = nullptr;
  const int64_t* targets = nullptr;
  float smoothing = 0;
  float factor = 1;
  float* loss = nullptr;  // (rows)
  bool gradient = true;   // false: the logits stay
};
template <class T>
void cross_entropy(const CrossEntropyParams<T>& params, Parallel& parallel);

// One step of AdamW on `count` numbers; the corrections are 1 - beta^step.
struct AdamWParams {
  int64_t count = 0;
  float* value = nullptr;
  const float* gradient = nullptr;
  float* mean = nullptr;
  float* square = nullptr;
  float rate = 0;
  float beta1 = 0, beta2 = 0;
  float epsilon = 0;
  float decay = 0;
  float correction1 = 1, correction2 = 1;
  float gradient_factor = 1;  // of clipping
};
void adamw(const AdamWParams& params, Parallel& parallel);

}  // namespace tempera::kernels
