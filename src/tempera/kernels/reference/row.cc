#include "tempera/kernels/reference/row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "tempera/kernels/dropout.h"

namespace tempera::kernels::reference {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

template <class T>
T gelu(T x) {
  return x * std::erfc(-x / std::numbers::sqrt2_v<T>) / 2;
}

template <class T>
T gelu_slope(T x) {
  const T density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<T>);
  return std::erfc(-x / std::numbers::sqrt2_v<T>) / 2 + x * density;
}

// The terms of a recipe at one row: a = s * (c + tanh_term + g * log_n).
template <class T>
struct RecipeTerms {
  T s = 1;
  T tanh_term = 0;
  T log_n = 0;
  T sum = 0;
};

template <class T>
RecipeTerms<T> recipe_terms(const Recipe<T>& recipe, int64_t rows, int64_t b, int64_t h,
                            int64_t r) {
  RecipeTerms<T> terms;
  if (recipe.s) terms.s = recipe.s[h];
  if (recipe.c) terms.sum += recipe.c[h];
  if (recipe.w) {
    const T* source = recipe.source.at(b, h, r);
    T f = 0;
    for (int64_t x = 0; x < recipe.size; ++x) f += recipe.w[h * recipe.size + x] * gelu(source[x]);
    terms.tanh_term = std::tanh(f);
    terms.sum += terms.tanh_term;
  }
  if (recipe.g) {
    terms.log_n = recipe.log_n[b * rows + r];
    terms.sum += recipe.g[h] * terms.log_n;
  }
  return terms;
}

template <class T>
T recipe_scale(const Recipe<T>& recipe, int64_t rows, int64_t b, int64_t h, int64_t r) {
  if (!recipe.active()) return 1;
  const RecipeTerms<T> terms = recipe_terms(recipe, rows, b, h, r);
  return terms.s * terms.sum;
}

template <class T>
void add_recipe_gradient(const Recipe<T>& recipe, const Extent& extent, int64_t b, int64_t h,
                         int64_t r, T d_scale, Rows<T> d_source, const ScaleGradient<T>& gradient) {
  const RecipeTerms<T> terms = recipe_terms(recipe, extent.rows, b, h, r);
  const T d_sum = d_scale * terms.s;
  if (gradient.s) gradient.s[h] += d_scale * terms.sum;
  if (gradient.c) gradient.c[h] += d_sum;
  if (gradient.g) gradient.g[h] += d_sum * terms.log_n;
  if (!recipe.w) return;
  const T d_f = d_sum * (1 - terms.tanh_term * terms.tanh_term);
  const T* source = recipe.source.at(b, h, r);
  for (int64_t x = 0; x < recipe.size; ++x) {
    const int64_t at = h * recipe.size + x;
    if (gradient.w) gradient.w[at] += d_f * gelu(source[x]);
    if (d_source) d_source.at(b, h, r)[x] += d_f * recipe.w[at] * gelu_slope(source[x]);
  }
}

// Fills dot, capped, cap_slope and logit.
template <class T>
void compute_logits(const AttentionParams<T>& p, const RowScales<T>& scales, int64_t b, int64_t h,
                    int64_t i, Row<T>& row) {
  const T a_q = scales.q(b, h, i);
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const T product = dot(p.q.at(b, h, i), p.k.at(b, row.kv_head, j), p.shape.qk_size);
    T x = p.scale * a_q * scales.k(b, row.kv_head, j) * product;
    if (p.bias) x += p.bias.at(b, h, i)[j];
    const T t = p.cap > 0 ? std::tanh(x / p.cap) : 0;
    const T capped = p.cap > 0 ? p.cap * t : x;
    row.dot.push_back(product);
    row.capped.push_back(capped);
    row.cap_slope.push_back(1 - t * t);
    row.logit.push_back(capped * row.post);
  }
}

// Fills max, lse, probability and entropy from the logits. A bias of -inf hides its key; a row
// whose keys are all hidden so is a fully masked row.
template <class T>
void compute_softmax(Row<T>& row) {
  row.max = -kInfinity<T>;
  for (const T logit : row.logit) row.max = std::max(row.max, logit);
  row.lse = row.max;
  row.probability.resize(row.logit.size());
  if (row.max == -kInfinity<T>) return;
  T sum = 0;
  for (const T logit : row.logit) sum += std::exp(logit - row.max);
  row.lse += std::log(sum);
  row.entropy = std::log(sum);
  for (size_t at = 0; at < row.logit.size(); ++at) {
    const T below_max = row.max - row.logit[at];
    if (below_max == kInfinity<T>) continue;
    row.probability[at] = std::exp(-below_max) / sum;
    row.entropy += row.probability[at] * below_max;  // relative to the maximum: no cancellation
  }
}

template <class T>
void compute_dropout(const AttentionParams<T>& p, int64_t b, int64_t h, int64_t i, Row<T>& row) {
  const uint32_t threshold = dropout_threshold(static_cast<double>(p.dropout));
  const auto number = static_cast<uint64_t>((b * p.shape.q_heads + h) * p.shape.q_rows + i);
  const DropoutRow bits = dropout_row(p.seed, number);
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const bool kept = dropout_bits(bits, static_cast<uint32_t>(j)) >= threshold;
    row.keep.push_back(kept ? 1 / (1 - p.dropout) : 0);
  }
}

}  // namespace

template <class T>
T dot(const T* x, const T* y, int64_t size) {
  T sum = 0;
  for (int64_t c = 0; c < size; ++c) sum += x[c] * y[c];
  return sum;
}

template <class T>
T rounded(T value, Weights weights) {
  if (weights.grid == 0) return value;
  const auto bits =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<double>(value) / weights.grid));
  const uint32_t nearest = (bits + 0x7FFFU + (bits >> 16 & 1)) & 0xFFFF0000U;
  return static_cast<T>(static_cast<double>(std::bit_cast<float>(nearest)) * weights.grid);
}

template <class T>
void add(T factor, const T* x, T* y, int64_t size) {
  for (int64_t c = 0; c < size; ++c) y[c] += factor * x[c];
}

template <class T>
RowNumbers<T> evaluate(const Scale<T>& scale, const Extent& extent) {
  RowNumbers<T> values(extent.batch, extent.heads, extent.rows);
  for (int64_t b = 0; b < extent.batch; ++b)
    for (int64_t h = 0; h < extent.heads; ++h)
      for (int64_t r = 0; r < extent.rows; ++r) {
        const T finished = scale.rows ? *scale.rows.at(b, h, r) : 1;
        values(b, h, r) = finished * recipe_scale(scale.recipe, extent.rows, b, h, r);
      }
  return values;
}

template <class T>
void add_scale_gradient(const Scale<T>& scale, const Extent& extent, const RowNumbers<T>& d_scale,
                        Rows<const T> operand, Rows<T> d_operand,
                        const ScaleGradient<T>& gradient) {
  const bool own_source = scale.recipe.source.data == operand.data;
  const Rows<T> d_source = own_source ? d_operand : gradient.source;
  for (int64_t b = 0; b < extent.batch; ++b)
    for (int64_t h = 0; h < extent.heads; ++h)
      for (int64_t r = 0; r < extent.rows; ++r) {
        const T d = d_scale(b, h, r);
        // A row that nobody reads may hold anything: 0 * inf must not reach the sums.
        if (d == 0) continue;
        if (gradient.rows)
          *gradient.rows.at(b, h, r) += d * recipe_scale(scale.recipe, extent.rows, b, h, r);
        if (!scale.recipe.active()) continue;
        const T finished = scale.rows ? *scale.rows.at(b, h, r) : 1;
        add_recipe_gradient(scale.recipe, extent, b, h, r, d * finished, d_source, gradient);
      }
}

template <class T>
Row<T> attend(const AttentionParams<T>& params, const RowScales<T>& scales, int64_t b, int64_t h,
              int64_t i) {
  Row<T> row;
  row.keys = visible_keys(params.mask, params.shape, b, i);
  row.kv_head = h / (params.shape.q_heads / params.shape.kv_heads);
  if (params.post) row.post = *params.post.at(b, h, i);
  compute_logits(params, scales, b, h, i, row);
  compute_softmax(row);
  compute_dropout(params, b, h, i, row);
  if (params.sinks) row.beside_sink = 1 / (1 + std::exp(params.sinks[h] - row.lse));
  return row;
}

#define TEMPERA_INSTANTIATE(T)                                                           \
  template T dot(const T*, const T*, int64_t);                                           \
  template T rounded(T, Weights);                                                        \
  template void add(T, const T*, T*, int64_t);                                           \
  template RowNumbers<T> evaluate(const Scale<T>&, const Extent&);                       \
  template void add_scale_gradient(const Scale<T>&, const Extent&, const RowNumbers<T>&, \
                                   Rows<const T>, Rows<T>, const ScaleGradient<T>&);     \
  template Row<T> attend(const AttentionParams<T>&, const RowScales<T>&, int64_t, int64_t, int64_t);

TEMPERA_INSTANTIATE(double)
TEMPERA_INSTANTIATE(float)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::reference
