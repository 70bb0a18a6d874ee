#pragma once

#include <cstdint>
#include <vector>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/extent.h"
#include "tempera/kernels/mask.h"
#include "tempera/kernels/reference/attention.h"

// What the forward and the backward pass of the reference share: the scales of the rows and one row
// of probabilities.
namespace tempera::kernels::reference {

// One number a (batch, head, row) of an operand.
template <class T>
class RowNumbers {
 public:
  RowNumbers(int64_t batch, int64_t heads, int64_t rows)
      : heads_(heads), rows_(rows), values_(static_cast<size_t>(batch * heads * rows)) {}

  T& operator()(int64_t b, int64_t h, int64_t r) {
    return values_[static_cast<size_t>((b * heads_ + h) * rows_ + r)];
  }
  T operator()(int64_t b, int64_t h, int64_t r) const {
    return values_[static_cast<size_t>((b * heads_ + h) * rows_ + r)];
  }

 private:
  int64_t heads_;
  int64_t rows_;
  std::vector<T> values_;
};

// The finished scale of every row; ones where there is none.
template <class T>
RowNumbers<T> evaluate(const Scale<T>& scale, const Extent& extent);

// Adds what d_scale, the gradient of every row's finished scale, means for the parts of the scale.
// A recipe that reads the operand itself adds to the operand's gradient.
template <class T>
void add_scale_gradient(const Scale<T>& scale, const Extent& extent, const RowNumbers<T>& d_scale,
                        Rows<const T> operand, Rows<T> d_operand, const ScaleGradient<T>& gradient);

template <class T>
struct RowScales {
  explicit RowScales(const AttentionParams<T>& params)
      : q(evaluate(params.q_scale, query_extent(params.shape, params.shape.qk_size))),
        k(evaluate(params.k_scale, key_extent(params.shape, params.shape.qk_size))),
        v(evaluate(params.v_scale, key_extent(params.shape, params.shape.v_size))) {}

  RowNumbers<T> q, k, v;
};

// One query row; the vectors have one entry a visible key.
template <class T>
struct Row {
  KeyRange keys;
  int64_t kv_head = 0;
  T post = 1;
  std::vector<T> dot;          // <q, k>
  std::vector<T> capped;       // cap(scale * a_q * a_k * dot + bias)
  std::vector<T> cap_slope;    // derivative of the cap there
  std::vector<T> logit;        // capped * post
  std::vector<T> probability;  // softmax without the sink
  std::vector<T> keep;         // 0 where dropped, 1 / (1 - dropout) elsewhere
  T lse = 0;
  T max = 0;
  T entropy = 0;
  T beside_sink = 1;  // the share of the probability that the sink leaves to the keys
};

template <class T>
Row<T> attend(const AttentionParams<T>& params, const RowScales<T>& scales, int64_t b, int64_t h,
              int64_t i);

template <class T>
T dot(const T* x, const T* y, int64_t size);
// To the nearest number that weights may be, ties to even.
template <class T>
T rounded(T value, Weights weights);
// y += factor * x
template <class T>
void add(T factor, const T* x, T* y, int64_t size);

}  // namespace tempera::kernels::reference
