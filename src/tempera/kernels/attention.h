#pragma once

#include <cstddef>
#include <cstdint>

#include "tempera/base/parallel.h"

// Attention with row temperatures (docs/reference/kernels.md has the formulas):
//
//   logit_ij = cap(scale * a_q[i] * a_k[j] * <q_i, k_j> + bias_ij) * post[i]      masked last
//   out_i    = sum_j softmax_j(logit_ij) * a_v[j] * v_j
//
// Kernels own nothing: pointers, element strides and a workspace come from the caller. They know
// row scales and no method's name. Every function here is implemented for T = double (reference),
// float and BFloat16 (cpu); arithmetic is in Real<T>.
namespace tempera::kernels {

struct BFloat16 {
  uint16_t bits;
};

template <class T>
struct RealOf {
  using type = float;
};
template <>
struct RealOf<double> {
  using type = double;
};
template <class T>
using Real = typename RealOf<T>::type;

// Rows addressed by (batch, head, row); the columns of a row are contiguous. Strides count
// elements, and a stride of 0 broadcasts. No data: absent. One number a row is a Rows with one
// column.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;

  explicit operator bool() const { return data != nullptr; }
  T* at(int64_t b, int64_t h, int64_t r) const { return data + b * batch + h * head + r * row; }
};

struct Shape {
  int64_t batch = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;  // divides q_heads; query head h reads kv head h / (q_heads / kv_heads)
  int64_t q_rows = 0;
  int64_t kv_rows = 0;
  int64_t qk_size = 0;
  int64_t v_size = 0;
};

// Every mask is one interval of keys a query row. Documents and padding arrive as explicit
// intervals (visible_ranges in mask.h makes them); causality and the window cut them further.
struct Mask {
  bool causal = false;
  int64_t window = 0;                  // W > 0: |position of the query - key| < W; 0: none
  int64_t query_offset = 0;            // position of query row 0 among the keys
  const int32_t* key_begin = nullptr;  // (batch, q_rows), contiguous; absent: 0
  const int32_t* key_end = nullptr;    // (batch, q_rows), contiguous; absent: kv_rows
};

// a = s * (c + tanh(<w, gelu(row)>) + g * log n), computed inside the attention pass. Absent c, w,
// g: no such term; absent s: 1. gelu is the exact one (erf). The row is the raw projection, before
// QK-norm and rotation.
template <class T>
struct Recipe {
  Rows<const T> source;            // rows that w reads; may be the very q, k or v of the call
  int64_t size = 0;                // columns of a source row
  const Real<T>* w = nullptr;      // (heads, size)
  const Real<T>* g = nullptr;      // (heads)
  const Real<T>* c = nullptr;      // (heads)
  const Real<T>* s = nullptr;      // (heads)
  const Real<T>* log_n = nullptr;  // (batch, rows); required with g

  bool active() const { return w || g || c || s; }
};

// The scale of one operand: the product of finished row scales and a recipe, each optional.
template <class T>
struct Scale {
  Rows<const Real<T>> rows;
  Recipe<T> recipe;

  bool active() const { return rows || recipe.active(); }
};

// Keys and values are of the type C: of T, or in a cache that is decoded, of fewer bits.
template <class T, class C = T>
struct AttentionParams {
  Shape shape;
  Rows<const T> q;
  Rows<const C> k, v;
  Mask mask;
  Real<T> scale = 1;
  Scale<T> q_scale, k_scale, v_scale;  // one number a query head (q) or kv head (k, v) and row
  Rows<const Real<T>> bias;  // a row has kv_rows columns; batch and head strides of 0 broadcast
  Real<T> cap = 0;           // > 0: cap * tanh(logit / cap)
  Rows<const Real<T>> post;  // a query head and row
  const Real<T>* sinks = nullptr;  // (q_heads)
  Real<T> dropout = 0;             // probability in [0, 1)
  uint64_t seed = 0;               // of the dropout
};

// A fully masked row: out 0, lse and max -inf, entropy 0. lse, max and entropy exclude the sink and
// the dropout.
template <class T>
struct AttentionOutputs {
  Rows<T> out;        // (batch, q_heads, q_rows, v_size)
  Rows<Real<T>> lse;  // required by the backward pass
  Rows<Real<T>> max;
  Rows<Real<T>> entropy;
  Real<T>* head_max =
      nullptr;  // (q_heads): the largest logit of the head over batch and rows; -inf if none
};

template <class T>
struct ScaleGradient {
  Rows<Real<T>> rows;
  // Left absent when the source is the operand itself: the gradient then goes into that operand's
  // own.
  Rows<T> source;
  Real<T>* w = nullptr;
  Real<T>* g = nullptr;
  Real<T>* c = nullptr;
  Real<T>* s = nullptr;
};

// What the backward pass reads of the forward pass, and the gradients it writes (absent: not
// wanted). Every gradient is overwritten, not added to.
template <class T>
struct AttentionGradients {
  Rows<const T> out;
  Rows<const Real<T>> lse;
  Rows<const T> d_out;
  Rows<const Real<T>> d_lse;  // absent: 0

  Rows<T> q, k, v;
  ScaleGradient<T> q_scale, k_scale, v_scale;
  Rows<Real<T>> bias;  // summed over the dimensions whose stride is 0
  Rows<Real<T>> post;
  Real<T>* sinks = nullptr;
};

// The cpu kernels. The workspace is aligned to 64 bytes and has at least the size that *_workspace
// says; it is linear in the number of rows. The same inputs and number of workers give the same
// bits.
template <class T>
size_t attention_forward_workspace(const AttentionParams<T>& params, int workers);
template <class T>
void attention_forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
                       Parallel& parallel, void* workspace);
template <class T>
size_t attention_backward_workspace(const AttentionParams<T>& params,
                                    const AttentionGradients<T>& gradients, int workers);
template <class T>
void attention_backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
                        Parallel& parallel, void* workspace);

// A few new query rows against a cache of keys and values, split over the keys so that batch 1 uses
// every worker. params.shape.kv_rows is the cache's capacity in rows (a bound on every length), and
// row i of sequence b stands at position lengths[b] - q_rows + i; mask.query_offset is ignored.
// Scales of k and v are finished rows only, laid out like k and v. Paged: k, v (and their scales)
// have `batch` as the stride between blocks of `block_size` rows, and logical row j of sequence b
// is row j % block_size of block block_table[b * table_stride + j / block_size]. C is T, BFloat16
// or int8_t, which are whole numbers: what makes a row of them is in the scales.
template <class T, class C = T>
struct DecodeParams {
  AttentionParams<T, C> attention;
  const int32_t* lengths = nullptr;  // (batch): rows of the cache in use, the new ones included
  const int32_t* block_table = nullptr;
  int64_t table_stride = 0;
  int64_t block_size = 0;
};

template <class T, class C>
size_t decode_workspace(const DecodeParams<T, C>& params, int workers);
template <class T, class C>
void decode(const DecodeParams<T, C>& params, const AttentionOutputs<T>& outputs,
            Parallel& parallel, void* workspace);

}  // namespace tempera::kernels
