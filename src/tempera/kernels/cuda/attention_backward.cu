#include "tempera/base/error.h"
#include "tempera/kernels/cuda/attention.h"
#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/reduce.cuh"
#include "tempera/kernels/validate.h"

namespace tempera::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// mean = <out, d_out>, a warp for every row.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    mean_kernel(Shape s, Rows<const T> out, Rows<const T> d_out, float* mean) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t h = blockIdx.y, b = blockIdx.z;
  if (i >= s.q_rows) return;
  const T* const x = row_at(out, b, h, i);
  const T* const y = row_at(d_out, b, h, i);
  float sum = 0;
  for (int64_t c = threadIdx.x % kWarp; c < s.v_size; c += kWarp)
    sum = fmaf(to_float(x[c]), to_float(y[c]), sum);
  sum = sum_lanes<kWarp>(sum);
  if (threadIdx.x % kWarp == 0) mean[(b * s.q_heads + h) * s.q_rows + i] = sum;
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
    mean = pieces.floats(s.batch * s.q_heads * s.q_rows);
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
  float *mean, *partial;
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
  g.lse = gradients.lse;
  g.d_out = gradients.d_out;
  g.d_lse = gradients.d_lse;
  g.mean = plan.mean;
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
    mean_kernel<<<dim3(static_cast<unsigned>(ceil_div(s.q_rows, kWarps)),
                       static_cast<unsigned>(s.q_heads), static_cast<unsigned>(s.batch)),
                  kWarps * kWarp, 0, stream>>>(s, gradients.out, gradients.d_out, plan.mean);
  if (gradients.sinks)
    sink_kernel<<<static_cast<unsigned>(s.q_heads), kSinkThreads, 0, stream>>>(
        s, params.sinks, gradients.lse, plan.mean, gradients.sinks);
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
  template size_t attention_backward_workspace(const AttentionParams<T>&,                          \
                                               const AttentionGradients<T>&);                      \
  template void attention_backward(const AttentionParams<T>&, const AttentionGradients<T>&, void*, \
                                   Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
