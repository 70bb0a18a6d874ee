#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/attention.h"
#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/reduce.cuh"
#include "tempera/kernels/validate.h"

namespace tempera::kernels::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowLanes = 16;

// A sink that takes more than this, as an exponent, leaves nothing to the keys.
constexpr float kMostOfSink = 60;

// The numbers of a row by kRowLanes lanes.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    rows_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g,
                Rows<const T> out, bool whole, Rows<const float> lse, Rows<const float> d_lse) {
  const Shape& s = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int i = static_cast<int>(blockIdx.x) * (kRowThreads / kRowLanes) +
                static_cast<int>(threadIdx.x) / kRowLanes;
  const int h = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const bool inside = i < s.q_rows;
  float mean = 0;
  if (inside) {
    const T* const x = row_at(out, b, h, i);
    const T* const y = row_at(g.d_out, b, h, i);
    for (int c = lane * kPack; c < s.v_size; c += kRowLanes * kPack) {  // sizes are whole packs
      float x_pack[kPack], y_pack[kPack];
      load_floats(x + c, whole, x_pack);
      load_floats(y + c, whole, y_pack);
#pragma unroll
      for (int e = 0; e < kPack; ++e) mean = fmaf(x_pack[e], y_pack[e], mean);
    }
  }
  mean = sum_lanes<kRowLanes>(mean);
  if (!inside || lane != 0) return;
  const int64_t dense = (b * s.q_heads + h) * s.q_rows + i;
  const float log_sum = *row_at(lse, b, h, i);
  const float sink = p.sinks ? expf(fminf(p.sinks[h] - log_sum, kMostOfSink)) : 0;
  g.rows.mean[dense] = mean;
  g.rows.factor[dense] = p.scale * (p.a_q.data ? *row_at(p.a_q, b, h, i) : 1) * g.factor_unit;
  g.rows.lse[dense] = (log_sum + log1pf(sink)) * kUnit<T>;
  g.rows.shift[dense] = mean - (d_lse.data ? *row_at(d_lse, b, h, i) * (1 + sink) : 0);
  if (h != 0) return;
  const KeySpan span = visible_span(p, b, i);
  g.rows.begin[b * s.q_rows + i] = span.begin;
  g.rows.end[b * s.q_rows + i] = span.end;
}

constexpr int kSinkThreads = 512;

// A block for every head.
__global__ void __launch_bounds__(kSinkThreads)
    sink_kernel(Shape s, const float* sinks, Rows<const float> lse, const float* mean,
                float* d_sinks) {
  const int64_t h = blockIdx.x;
  float sum = 0;
  for (int64_t at = threadIdx.x; at < s.batch * s.q_rows; at += kSinkThreads) {
    const int64_t b = at / s.q_rows, i = at % s.q_rows;
    const float log_sum = *row_at(lse, b, h, i);
    if (log_sum == -INFINITY) continue;  // the row sees nothing
    const float share = 1 / (1 + expf(log_sum - sinks[h]));
    sum -= share * mean[(b * s.q_heads + h) * s.q_rows + i];
  }
  sum = sum_block(sum);
  if (threadIdx.x == 0) d_sinks[h] = sum;
}

template <class T>
bool wanted(const Scale<T>& scale, const ScaleGradient<T>& g, bool own_source, bool operand) {
  return g.rows || g.source || g.w || g.g || g.c || g.s ||
         (scale.recipe.w && own_source && operand);
}

// Where everything lies in the workspace.
template <class T>
struct Plan {
  Plan(const AttentionParams<T>& p, const AttentionGradients<T>& g, void* workspace)
      : pieces(workspace), scales(p, pieces) {
    const Shape& s = p.shape;
    const int64_t count = s.batch * s.q_heads * s.q_rows;
    for (float** numbers : {&rows.mean, &rows.factor, &rows.lse, &rows.shift})
      *numbers = pieces.floats(count);
    for (int32_t** numbers : {&rows.begin, &rows.end}) *numbers = pieces.ints(s.batch * s.q_rows);
    own_q = p.q_scale.recipe.source.data == p.q.data;
    own_k = p.k_scale.recipe.source.data == p.k.data;
    own_v = p.v_scale.recipe.source.data == p.v.data;
    if (wanted(p.q_scale, g.q_scale, own_q, bool(g.q)))
      d_a_q = pieces.floats(scales.q_extent.count());
    if (wanted(p.k_scale, g.k_scale, own_k, bool(g.k)))
      d_a_k = pieces.floats(scales.k_extent.count());
    if (wanted(p.v_scale, g.v_scale, own_v, bool(g.v)))
      d_a_v = pieces.floats(scales.k_extent.count());
    own(p.q_scale, own_q && g.q, scales.q_extent, scales.q_slope, q_recipe);
    own(p.k_scale, own_k && g.k, scales.k_extent, scales.k_slope, k_recipe);
    own(p.v_scale, own_v && g.v, scales.k_extent, scales.v_slope, v_recipe);
    int64_t most = 0;
    if (d_a_q) most = std::max(most, scale_partial(p.q_scale, scales.q_extent));
    if (d_a_k) most = std::max(most, scale_partial(p.k_scale, scales.k_extent));
    if (d_a_v) most = std::max(most, scale_partial(p.v_scale, scales.k_extent));
    partial = pieces.floats(most);
  }

  void own(const Scale<T>& scale, bool wanted_too, const ScaleExtent& extent, float*& slope,
           OwnRecipe& recipe) {
    if (!scale.recipe.w || !wanted_too) return;
    slope = pieces.floats(extent.count());
    recipe = {scale.recipe.w, slope, scale.recipe.size};
  }

  Pieces pieces;
  CallScales<T> scales;
  OwnRecipe q_recipe, k_recipe, v_recipe;
  bool own_q, own_k, own_v;
  GradientRows rows;
  float* partial;
  float *d_a_q = nullptr, *d_a_k = nullptr, *d_a_v = nullptr;
};

template <class T>
void check_call(AttentionParams<T> params, const AttentionGradients<T>& gradients) {
  params.mask.key_begin = params.mask.key_end = nullptr;
  validate(params, gradients);
  TEMPERA_CHECK(
      !gradients.bias || gradients.bias.row != 0 || params.shape.q_rows <= 1,
      "a bias gradient summed over the query rows is not available on the GPU; expand the "
      "bias, or compute on the CPU");
}

}  // namespace

template <class T>
int64_t attention_shared_bytes(const Shape& shape) {
  return std::max({forward_shared_bytes<T>(shape), key_gradient_shared_bytes<T>(shape),
                   query_gradient_shared_bytes<T>(shape), bias_gradient_shared_bytes<T>(shape)});
}

template <class T>
size_t attention_backward_workspace(const AttentionParams<T>& params,
                                    const AttentionGradients<T>& gradients) {
  // Any address that is not null: absent pieces are told by null.
  return Plan<T>(params, gradients, reinterpret_cast<void*>(uintptr_t{256})).pieces.used();
}

template <class T>
void attention_backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
                        void* workspace, Stream stream) {
  check_call(params, gradients);
  const Shape& s = params.shape;
  Plan<T> plan(params, gradients, workspace);
  plan.scales.finish(params, stream);
  const Problem<T> problem = make_problem(params, plan.scales);
  Backward<T> g;
  g.rows = plan.rows;
  g.factor_unit = is_plain(problem) ? kUnit<T> : 1;
  g.d_out = gradients.d_out;
  g.whole = aligned(gradients.d_out);
  g.d_q = gradients.q;
  g.d_k = gradients.k;
  g.d_v = gradients.v;
  g.d_a_q = plan.d_a_q;
  g.d_a_k = plan.d_a_k;
  g.d_a_v = plan.d_a_v;
  g.d_post = gradients.post;
  g.d_bias = gradients.bias;
  g.own_q = plan.q_recipe;
  g.own_k = plan.k_recipe;
  g.own_v = plan.v_recipe;
  if (s.batch * s.q_rows > 0)
    rows_kernel<<<dim3(static_cast<unsigned>(ceil_div(s.q_rows, kRowThreads / kRowLanes)),
                       static_cast<unsigned>(s.q_heads), static_cast<unsigned>(s.batch)),
                  kRowThreads, 0, stream>>>(problem, g, gradients.out,
                                            g.whole && aligned(gradients.out), gradients.lse,
                                            gradients.d_lse);
  if (gradients.sinks)
    sink_kernel<<<static_cast<unsigned>(s.q_heads), kSinkThreads, 0, stream>>>(
        s, params.sinks, gradients.lse, plan.rows.mean, gradients.sinks);
  check_launch("attention_backward");
  if (g.d_k || g.d_v || g.d_a_k || g.d_a_v) launch_key_gradients(problem, g, stream);
  if (g.d_q || g.d_a_q || g.d_post) launch_query_gradients(problem, g, stream);
  if (g.d_bias) launch_bias_gradient(problem, g, stream);
  if (g.d_a_q)
    scale_backward(params.q_scale, plan.scales.q_extent, g.d_a_q, plan.own_q, gradients.q_scale,
                   plan.partial, stream);
  if (g.d_a_k)
    scale_backward(params.k_scale, plan.scales.k_extent, g.d_a_k, plan.own_k, gradients.k_scale,
                   plan.partial, stream);
  if (g.d_a_v)
    scale_backward(params.v_scale, plan.scales.k_extent, g.d_a_v, plan.own_v, gradients.v_scale,
                   plan.partial, stream);
}

#define TEMPERA_INSTANTIATE(T)                                                                     \
  template int64_t attention_shared_bytes<T>(const Shape&);                                        \
  template size_t attention_backward_workspace(const AttentionParams<T>&,                          \
                                               const AttentionGradients<T>&);                      \
  template void attention_backward(const AttentionParams<T>&, const AttentionGradients<T>&, void*, \
                                   Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
