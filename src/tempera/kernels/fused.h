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

// h is written where there is a residual. mean (only where centred) and rstd, one a row, are what
// the backward pass needs.
template <class T>
void norm_forward(const NormParams<T>& params, T* h, T* y, float* mean, float* rstd,
                  Parallel& parallel);

// Floats of workspace for the backward pass.
int64_t norm_backward_workspace(int64_t size);
// Of h, which is given as x without a residual. d_x = the gradient that comes through y + d_h; d_h,
// d_gain and d_bias may be absent.
template <class T>
void norm_backward(const NormParams<T>& params, const float* mean, const float* rstd, const T* d_y,
                   const T* d_h, T* d_x, float* d_gain, float* d_bias, Parallel& parallel,
                   float* workspace);

// y = silu(gate) * up, where a row of gate_up is the gate's `size` columns and then up's.
template <class T>
void swiglu_forward(int64_t rows, int64_t size, const T* gate_up, T* y, Parallel& parallel);
template <class T>
void swiglu_backward(int64_t rows, int64_t size, const T* gate_up, const T* d_y, T* d_gate_up,
                     Parallel& parallel);

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
