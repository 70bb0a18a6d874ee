#pragma once

#include "tempera/kernels/cuda/attention_problem.cuh"
#include "tempera/kernels/cuda/attention_tile.cuh"

// What the passes of attention's backward share.
namespace tempera::kernels::cuda {

// A recipe that reads its own operand: what the gradient of a row's scale adds to the row's own.
struct OwnRecipe {
  const float* w = nullptr;      // absent: no such recipe
  const float* slope = nullptr;  // of a row's scale, dense
  int64_t size = 0;
};

// Device pointers of the backward pass beside the problem itself.
template <class T>
struct Backward {
  Rows<const float> lse;
  Rows<const T> d_out;
  Rows<const float> d_lse;
  const float* mean;  // <out, d_out> of every row, dense
  bool whole;         // rows of d_out are made of whole vectors
  Rows<T> d_q, d_k, d_v;
  float *d_a_q, *d_a_k, *d_a_v;  // dense; absent: not wanted
  Rows<float> d_post, d_bias;
  OwnRecipe own_q, own_k, own_v;
};

// A query row, with what its gradients depend on.
struct GradientRow {
  QueryRow row;
  float lse = -INFINITY;
  float beside = 1;  // the share of the probability that the sink leaves to the keys
  float mean = 0;
  float d_lse = 0;
};

template <class T>
__device__ inline GradientRow gradient_row(const Problem<T>& p, const Backward<T>& g, int b, int h,
                                           int i) {
  GradientRow r;
  r.row = query_row(p, b, h, i);
  r.lse = *row_at(g.lse, b, h, i);
  if (p.sinks) r.beside = 1 / (1 + expf(p.sinks[h] - r.lse));
  r.mean = g.mean[(b * p.shape.q_heads + h) * p.shape.q_rows + i];
  if (g.d_lse.data) r.d_lse = *row_at(g.d_lse, b, h, i);
  return r;
}

struct Element {
  float weight = 0;  // of the value: probability beside the sink, with dropout
  float d_post = 0;
  float d_x = 0;  // of scale * a_q * a_k * <q, k> + bias
};

// dot = <q, k>, product = <d_out, v>.
template <class T>
__device__ inline Element element_of(const Problem<T>& p, const GradientRow& r, int j, float a_k,
                                     float a_v, float dot, float product) {
  const Logit logit = logit_of(p, r.row, j, a_k, dot);
  Element e;
  if (logit.value == -INFINITY) return e;
  const float probability = exp_of<T>(logit.value - r.lse);
  if (probability == 0) return e;  // what it is multiplied with may be infinite
  const float keep = kept(p, r.row, j);
  e.weight = probability * r.beside * keep;
  const float d_logit = probability * (r.beside * (keep * a_v * product - r.mean) + r.d_lse);
  e.d_post = d_logit * logit.capped;
  e.d_x = d_logit * r.row.post * logit.slope;
  return e;
}

// d += the recipe's share: half h of a product's numbers, whose row `row` holds the operand.
// d_scale: of the row's finished scale.
template <class T, int kTiles>
__device__ inline void add_recipe(const OwnRecipe& own, int64_t head, int64_t dense, float d_scale,
                                  const T* row, int half, float (&d)[kTiles][4]) {
  // A row that nobody reads may hold anything.
  if (!own.w || d_scale == 0) return;
  const float d_f = d_scale * own.slope[dense];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e;
      if (column >= own.size) continue;
      const float x = to_float(row[column]);
      const Normal normal = normal_at(x);
      d[n][half * 2 + e] = fmaf(d_f * own.w[head * own.size + column],
                                fmaf(x, normal.density, normal.below), d[n][half * 2 + e]);
    }
}

template <class T>
void launch_key_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream);
template <class T>
void launch_query_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream);
template <class T>
void launch_bias_gradient(const Problem<T>& p, const Backward<T>& g, Stream stream);

}  // namespace tempera::kernels::cuda
