#include "tempera/kernels/reference_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tempera/kernels/dropout.h"

namespace tempera::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double gelu_slope(double x) {
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
}

// The terms of a recipe at one row: a = s * (c + tanh_term + g * log_n).
struct RecipeTerms {
  double s = 1;
  double tanh_term = 0;
  double log_n = 0;
  double sum = 0;
};

RecipeTerms recipe_terms(const Recipe<double>& recipe, int64_t rows, int64_t b, int64_t h,
                         int64_t r) {
  RecipeTerms terms;
  if (recipe.s) terms.s = recipe.s[h];
  if (recipe.c) terms.sum += recipe.c[h];
  if (recipe.w) {
    const double* source = recipe.source.at(b, h, r);
    double f = 0;
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

double recipe_scale(const Recipe<double>& recipe, int64_t rows, int64_t b, int64_t h, int64_t r) {
  if (!recipe.active()) return 1;
  const RecipeTerms terms = recipe_terms(recipe, rows, b, h, r);
  return terms.s * terms.sum;
}

void add_recipe_gradient(const Recipe<double>& recipe, const Extent& extent, int64_t b, int64_t h,
                         int64_t r, double d_scale, Rows<double> d_source,
                         const ScaleGradient<double>& gradient) {
  const RecipeTerms terms = recipe_terms(recipe, extent.rows, b, h, r);
  const double d_sum = d_scale * terms.s;
  if (gradient.s) gradient.s[h] += d_scale * terms.sum;
  if (gradient.c) gradient.c[h] += d_sum;
  if (gradient.g) gradient.g[h] += d_sum * terms.log_n;
  if (!recipe.w) return;
  const double d_f = d_sum * (1 - terms.tanh_term * terms.tanh_term);
  const double* source = recipe.source.at(b, h, r);
  for (int64_t x = 0; x < recipe.size; ++x) {
    const int64_t at = h * recipe.size + x;
    if (gradient.w) gradient.w[at] += d_f * gelu(source[x]);
    if (d_source) d_source.at(b, h, r)[x] += d_f * recipe.w[at] * gelu_slope(source[x]);
  }
}

// Fills dot, capped, cap_slope and logit.
void compute_logits(const AttentionParams<double>& p, const RowScales& scales, int64_t b, int64_t h,
                    int64_t i, Row& row) {
  const double a_q = scales.q(b, h, i);
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const double product = dot(p.q.at(b, h, i), p.k.at(b, row.kv_head, j), p.shape.qk_size);
    double x = p.scale * a_q * scales.k(b, row.kv_head, j) * product;
    if (p.bias) x += p.bias.at(b, h, i)[j];
    const double t = p.cap > 0 ? std::tanh(x / p.cap) : 0;
    const double capped = p.cap > 0 ? p.cap * t : x;
    row.dot.push_back(product);
    row.capped.push_back(capped);
    row.cap_slope.push_back(1 - t * t);
    row.logit.push_back(capped * row.post);
  }
}

// Fills max, lse, probability and entropy from the logits. A bias of -inf hides its key; a row
// whose keys are all hidden so is a fully masked row.
void compute_softmax(Row& row) {
  row.max = -kInfinity;
  for (const double logit : row.logit) row.max = std::max(row.max, logit);
  row.lse = row.max;
  row.probability.resize(row.logit.size());
  if (row.max == -kInfinity) return;
  double sum = 0;
  for (const double logit : row.logit) sum += std::exp(logit - row.max);
  row.lse += std::log(sum);
  row.entropy = std::log(sum);
  for (size_t at = 0; at < row.logit.size(); ++at) {
    const double below_max = row.max - row.logit[at];
    if (below_max == kInfinity) continue;
    row.probability[at] = std::exp(-below_max) / sum;
    row.entropy += row.probability[at] * below_max;  // relative to the maximum: no cancellation
  }
}

void compute_dropout(const AttentionParams<double>& p, int64_t b, int64_t h, int64_t i, Row& row) {
  const uint32_t threshold = dropout_threshold(p.dropout);
  const auto number = static_cast<uint64_t>((b * p.shape.q_heads + h) * p.shape.q_rows + i);
  const DropoutRow bits = dropout_row(p.seed, number);
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const bool kept = dropout_bits(bits, static_cast<uint32_t>(j)) >= threshold;
    row.keep.push_back(kept ? 1 / (1 - p.dropout) : 0);
  }
}

}  // namespace

double dot(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t c = 0; c < size; ++c) sum += x[c] * y[c];
  return sum;
}

void add(double factor, const double* x, double* y, int64_t size) {
  for (int64_t c = 0; c < size; ++c) y[c] += factor * x[c];
}

RowNumbers evaluate(const Scale<double>& scale, const Extent& extent) {
  RowNumbers values(extent.batch, extent.heads, extent.rows);
  for (int64_t b = 0; b < extent.batch; ++b)
    for (int64_t h = 0; h < extent.heads; ++h)
      for (int64_t r = 0; r < extent.rows; ++r) {
        const double finished = scale.rows ? *scale.rows.at(b, h, r) : 1;
        values(b, h, r) = finished * recipe_scale(scale.recipe, extent.rows, b, h, r);
      }
  return values;
}

void add_scale_gradient(const Scale<double>& scale, const Extent& extent, const RowNumbers& d_scale,
                        Rows<const double> operand, Rows<double> d_operand,
                        const ScaleGradient<double>& gradient) {
  const bool own_source = scale.recipe.source.data == operand.data;
  const Rows<double> d_source = own_source ? d_operand : gradient.source;
  for (int64_t b = 0; b < extent.batch; ++b)
    for (int64_t h = 0; h < extent.heads; ++h)
      for (int64_t r = 0; r < extent.rows; ++r) {
        const double d = d_scale(b, h, r);
        // A row that nobody reads may hold anything: 0 * inf must not reach the sums.
        if (d == 0) continue;
        if (gradient.rows)
          *gradient.rows.at(b, h, r) += d * recipe_scale(scale.recipe, extent.rows, b, h, r);
        if (!scale.recipe.active()) continue;
        const double finished = scale.rows ? *scale.rows.at(b, h, r) : 1;
        add_recipe_gradient(scale.recipe, extent, b, h, r, d * finished, d_source, gradient);
      }
}

Row attend(const AttentionParams<double>& params, const RowScales& scales, int64_t b, int64_t h,
           int64_t i) {
  Row row;
  row.keys = visible_keys(params.mask, params.shape, b, i);
  row.kv_head = h / (params.shape.q_heads / params.shape.kv_heads);
  if (params.post) row.post = *params.post.at(b, h, i);
  compute_logits(params, scales, b, h, i, row);
  compute_softmax(row);
  compute_dropout(params, b, h, i, row);
  if (params.sinks) row.beside_sink = 1 / (1 + std::exp(params.sinks[h] - row.lse));
  return row;
}

}  // namespace tempera::kernels::reference
