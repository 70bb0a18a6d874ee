#include <algorithm>
#include <vector>

#include "tempera/kernels/reference/attention.h"
#include "tempera/kernels/reference/row.h"
#include "tempera/kernels/validate.h"

namespace tempera::kernels::reference {
namespace {

template <class T>
void clear(Rows<T> rows, const Extent& extent) {
  if (!rows) return;
  // A dimension of stride 0 exists once, even when the shape says that it is empty.
  const int64_t batch = rows.batch == 0 ? 1 : extent.batch;
  const int64_t heads = rows.head == 0 ? 1 : extent.heads;
  const int64_t count = rows.row == 0 ? 1 : extent.rows;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < count; ++r) std::fill_n(rows.at(b, h, r), extent.size, T{0});
}

template <class T>
void clear(const ScaleGradient<T>& gradient, const Recipe<T>& recipe, const Extent& extent) {
  clear(gradient.rows, {extent.batch, extent.heads, extent.rows, 1});
  clear(gradient.source, {extent.batch, extent.heads, extent.rows, recipe.size});
  if (gradient.w) std::fill_n(gradient.w, extent.heads * recipe.size, T{0});
  for (T* numbers : {gradient.g, gradient.c, gradient.s})
    if (numbers) std::fill_n(numbers, extent.heads, T{0});
}

template <class T>
void clear(const AttentionParams<T>& p, const AttentionGradients<T>& gradients) {
  const Shape& s = p.shape;
  clear(gradients.q, query_extent(s, s.qk_size));
  clear(gradients.k, key_extent(s, s.qk_size));
  clear(gradients.v, key_extent(s, s.v_size));
  clear(gradients.q_scale, p.q_scale.recipe, query_extent(s, s.qk_size));
  clear(gradients.k_scale, p.k_scale.recipe, key_extent(s, s.qk_size));
  clear(gradients.v_scale, p.v_scale.recipe, key_extent(s, s.v_size));
  clear(gradients.bias, {s.batch, s.q_heads, s.q_rows, s.kv_rows});
  clear(gradients.post, query_extent(s, 1));
  if (gradients.sinks) std::fill_n(gradients.sinks, s.q_heads, T{0});
}

template <class T>
class Backward {
 public:
  Backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
           Weights weights)
      : p_(params),
        gradients_(gradients),
        weights_(weights),
        scales_(params),
        d_q_scale_(params.shape.batch, params.shape.q_heads, params.shape.q_rows),
        d_k_scale_(params.shape.batch, params.shape.kv_heads, params.shape.kv_rows),
        d_v_scale_(params.shape.batch, params.shape.kv_heads, params.shape.kv_rows) {}

  void run() {
    clear(p_, gradients_);
    const Shape& shape = p_.shape;
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t h = 0; h < shape.q_heads; ++h)
        for (int64_t i = 0; i < shape.q_rows; ++i) add_row(b, h, i);
    add_scale_gradient(p_.q_scale, query_extent(shape, shape.qk_size), d_q_scale_, p_.q,
                       gradients_.q, gradients_.q_scale);
    add_scale_gradient(p_.k_scale, key_extent(shape, shape.qk_size), d_k_scale_, p_.k, gradients_.k,
                       gradients_.k_scale);
    add_scale_gradient(p_.v_scale, key_extent(shape, shape.v_size), d_v_scale_, p_.v, gradients_.v,
                       gradients_.v_scale);
  }

 private:
  void add_row(int64_t b, int64_t h, int64_t i) {
    const Row<T> row = attend(p_, scales_, b, h, i);
    if (row.keys.size() == 0) return;
    const std::vector<T> d_probability = add_value_gradients(row, b, h, i);
    // The mean of d_probability, sink and dropout included.
    const T mean = dot(gradients_.d_out.at(b, h, i), gradients_.out.at(b, h, i), p_.shape.v_size);
    if (gradients_.sinks) gradients_.sinks[h] -= (1 - row.beside_sink) * mean;

    const T d_lse = gradients_.d_lse ? *gradients_.d_lse.at(b, h, i) : 0;
    T d_post = 0;
    for (size_t at = 0; at < row.logit.size(); ++at) {
      if (row.probability[at] == 0) continue;  // its logit may be -inf, and 0 * inf is no 0
      const T through_out = row.beside_sink * (d_probability[at] - mean);
      const T d_logit = row.probability[at] * (through_out + d_lse);
      d_post += d_logit * row.capped[at];
      add_logit_gradient(row, b, h, i, at, d_logit * row.post * row.cap_slope[at]);
    }
    if (gradients_.post) *gradients_.post.at(b, h, i) += d_post;
  }

  // out = sum_j keep_j * P_j * a_v[j] * v_j, P the probability beside the sink. Returns dP.
  std::vector<T> add_value_gradients(const Row<T>& row, int64_t b, int64_t h, int64_t i) {
    const T* d_out = gradients_.d_out.at(b, h, i);
    std::vector<T> d_probability;
    for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
      const auto at = static_cast<size_t>(j - row.keys.begin);
      const T weight = row.probability[at] * row.beside_sink * row.keep[at];
      const T a_v = scales_.v(b, row.kv_head, j);
      const T product = dot(d_out, p_.v.at(b, row.kv_head, j), p_.shape.v_size);
      d_probability.push_back(row.keep[at] * a_v * product);
      d_v_scale_(b, row.kv_head, j) += weight * product;
      if (gradients_.v)
        add(rounded(weight * a_v, weights_), d_out, gradients_.v.at(b, row.kv_head, j),
            p_.shape.v_size);
    }
    return d_probability;
  }

  // d: the gradient of scale * a_q * a_k * <q, k> + bias.
  void add_logit_gradient(const Row<T>& row, int64_t b, int64_t h, int64_t i, size_t at, T d) {
    const int64_t j = row.keys.begin + static_cast<int64_t>(at);
    const T a_q = scales_.q(b, h, i);
    const T a_k = scales_.k(b, row.kv_head, j);
    d_q_scale_(b, h, i) += d * p_.scale * a_k * row.dot[at];
    d_k_scale_(b, row.kv_head, j) += d * p_.scale * a_q * row.dot[at];
    const T factor = rounded(d * p_.scale * a_q * a_k, weights_);
    const T* q = p_.q.at(b, h, i);
    const T* k = p_.k.at(b, row.kv_head, j);
    if (gradients_.q) add(factor, k, gradients_.q.at(b, h, i), p_.shape.qk_size);
    if (gradients_.k) add(factor, q, gradients_.k.at(b, row.kv_head, j), p_.shape.qk_size);
    if (gradients_.bias) gradients_.bias.at(b, h, i)[j] += d;
  }

  const AttentionParams<T>& p_;
  const AttentionGradients<T>& gradients_;
  const Weights weights_;
  const RowScales<T> scales_;
  RowNumbers<T> d_q_scale_, d_k_scale_, d_v_scale_;
};

}  // namespace

template <class T>
void backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
              Weights weights) {
  validate(params, gradients);
  Backward(params, gradients, weights).run();
}

template void backward(const AttentionParams<double>&, const AttentionGradients<double>&, Weights);
template void backward(const AttentionParams<float>&, const AttentionGradients<float>&, Weights);

}  // namespace tempera::kernels::reference
