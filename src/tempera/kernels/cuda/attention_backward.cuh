#pragma once

#include "tempera/kernels/cuda/attention_problem.cuh"
#include "tempera/kernels/cuda/attention_tile.cuh"

// What the passes of attention's backward share.
namespace tempera::kernels::cuda {

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

template <class T>
void launch_key_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream);
template <class T>
void launch_query_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream);
template <class T>
void launch_bias_gradient(const Problem<T>& p, const Backward<T>& g, Stream stream);

}  // namespace tempera::kernels::cuda
