#pragma once

#include <cstddef>
#include <cstdint>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/cuda/stream.h"

// Everything between the projections to q, k and v and attention itself, in one pass: each
// number is read once and written once. For T = float and BFloat16; arithmetic is in float. All
// pointers are of the device.
namespace tempera::kernels::cuda {

// Columns of a head, and how many of them rotate with another one (0: none).
constexpr bool takes_head(int64_t size) { return size >= 8 && size <= 256 && size % 8 == 0; }
constexpr bool takes_pairs(int64_t pairs) { return pairs % 4 == 0; }
constexpr bool takes_prologue(int64_t size, int64_t pairs) {
  return takes_head(size) && takes_pairs(pairs);
}

// a = rows * s * (c + tanh(<w, gelu(x)>) + g * log n), as in attention.h: absent c, w, g give no
// term, absent s and rows are 1. x is the head's row of the projection, bias included, before norm
// and rotation.
struct PrologueScale {
  Rows<const float> rows;
  const float* w = nullptr;  // (heads, size)
  const float* g = nullptr;  // (heads)
  const float* c = nullptr;  // (heads)
  const float* s = nullptr;  // (heads)
  bool g_is_logit = false;   // sigmoid(g) stands for g, and the gradient is that of the logit

  constexpr bool recipe() const { return w || g || c || s; }
};

// The heads of q, k or v: out = a * rotation(norm(x) * gain).
struct PrologueOperand {
  int64_t heads = 0;            // 0: there is no such operand
  int64_t size = 0;             // as takes_head() says
  bool norm = false;            // x / sqrt(mean(x^2) + epsilon)
  const float* gain = nullptr;  // (size), shared by the heads; absent: 1
  bool rotate = false;
  PrologueScale scale;
};

template <class T>
struct PrologueParams {
  int64_t batch = 0;
  int64_t rows = 0;
  Rows<const T> x_q, x_k, x_v;  // parts of a joint projection, or three of them
  PrologueOperand q, k, v;
  const float* bias = nullptr;  // (columns): of q's heads, then k's, then v's; absent: 0
  float epsilon = 0;
  // Rotates column c with column c + pairs; columns from 2 * pairs on stay. cos and sin are
  // (table rows, pairs), of which row t of sequence b uses table_row[b * rows + t], or t where that
  // is absent.
  int64_t pairs = 0;  // as takes_pairs() says
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int64_t* table_row = nullptr;
  const float* log_n = nullptr;  // (batch, rows); absent: log(t + 1), as under causality
};

// The heads of a joint projection (batch * rows, stride) that begin at a column.
template <class T>
constexpr Rows<T> projection_heads(T* x, int64_t rows, int64_t stride, int64_t column,
                                   int64_t size) {
  return {x + column, rows * stride, size, stride};
}

template <class T>
struct PrologueOutputs {
  Rows<T> q, k, v;
};

// Absent: not wanted. Gradients are overwritten, not added to.
struct PrologueOperandGradient {
  Rows<float> rows;
  float* w = nullptr;
  float* g = nullptr;
  float* c = nullptr;
  float* s = nullptr;
  float* gain = nullptr;
};

template <class T>
struct PrologueGradients {
  Rows<const T> d_q, d_k, d_v;  // of the outputs
  Rows<T> x_q, x_k, x_v;        // each may take the place of d_q, d_k or d_v
  float* bias = nullptr;
  PrologueOperandGradient q, k, v;
};

// Throws tempera::Error where the parts do not fit together.
template <class T>
void validate(const PrologueParams<T>& params);

template <class T>
void prologue_forward(const PrologueParams<T>& params, const PrologueOutputs<T>& outputs,
                      Stream stream);

// Computes the forward pass again from the inputs: nothing else is kept. The same inputs give the
// same bits. workspace: aligned to 16 bytes.
template <class T>
size_t prologue_backward_workspace(const PrologueParams<T>& params);
template <class T>
void prologue_backward(const PrologueParams<T>& params, const PrologueGradients<T>& gradients,
                       void* workspace, Stream stream);

}  // namespace tempera::kernels::cuda
