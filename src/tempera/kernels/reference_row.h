#pragma once

#include <cstdint>
#include <vector>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/mask.h"

// What the forward and the backward pass of the reference share: the scales of the rows and one row
// of probabilities.
namespace tempera::kernels::reference {

// One number a (batch, head, row) of an operand.
class RowNumbers {
 public:
  RowNumbers(int64_t batch, int64_t heads, int64_t rows)
      : heads_(heads), rows_(rows), values_(static_cast<size_t>(batch * heads * rows)) {}

  double& operator()(int64_t b, int64_t h, int64_t r) {
    return values_[static_cast<size_t>((b * heads_ + h) * rows_ + r)];
  }
  double operator()(int64_t b, int64_t h, int64_t r) const {
    return values_[static_cast<size_t>((b * heads_ + h) * rows_ + r)];
  }

 private:
  int64_t heads_;
  int64_t rows_;
  std::vector<double> values_;
};

// The dimensions of an operand's rows.
struct Extent {
  int64_t batch;
  int64_t heads;
  int64_t rows;
  int64_t size;
};

inline Extent query_extent(const Shape& s) { return {s.batch, s.q_heads, s.q_rows, s.qk_size}; }
inline Extent key_extent(const Shape& s) { return {s.batch, s.kv_heads, s.kv_rows, s.qk_size}; }
inline Extent value_extent(const Shape& s) { return {s.batch, s.kv_heads, s.kv_rows, s.v_size}; }

// The finished scale of every row; ones where there is none.
RowNumbers evaluate(const Scale<double>& scale, const Extent& extent);

// Adds what d_scale, the gradient of every row's finished scale, means for the parts of the scale.
// A recipe that reads the operand itself adds to the operand's gradient.
void add_scale_gradient(const Scale<double>& scale, const Extent& extent, const RowNumbers& d_scale,
                        Rows<const double> operand, Rows<double> d_operand,
                        const ScaleGradient<double>& gradient);

struct RowScales {
  explicit RowScales(const AttentionParams<double>& params)
      : q(evaluate(params.q_scale, query_extent(params.shape))),
        k(evaluate(params.k_scale, key_extent(params.shape))),
        v(evaluate(params.v_scale, value_extent(params.shape))) {}

  RowNumbers q, k, v;
};

// One query row; the vectors have one entry a visible key.
struct Row {
  KeyRange keys;
  int64_t kv_head = 0;
  double post = 1;
  std::vector<double> dot;          // <q, k>
  std::vector<double> capped;       // cap(scale * a_q * a_k * dot + bias)
  std::vector<double> cap_slope;    // derivative of the cap there
  std::vector<double> logit;        // capped * post
  std::vector<double> probability;  // softmax without the sink
  std::vector<double> keep;         // 0 where dropped, 1 / (1 - dropout) elsewhere
  double lse = 0;
  double max = 0;
  double entropy = 0;
  double beside_sink = 1;  // the share of the probability that the sink leaves to the keys
};

Row attend(const AttentionParams<double>& params, const RowScales& scales, int64_t b, int64_t h,
           int64_t i);

double dot(const double* x, const double* y, int64_t size);
// y += factor * x
void add(double factor, const double* x, double* y, int64_t size);

}  // namespace tempera::kernels::reference
