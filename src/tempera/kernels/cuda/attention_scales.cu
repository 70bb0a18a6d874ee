#include <algorithm>

#include "tempera/kernels/cuda/attention_problem.cuh"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/reduce.cuh"

// Row scales in passes of their own: a warp takes a row. Sources may have any number of columns.
namespace tempera::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int64_t kRowsOfBlock = 64;

struct Terms {
  float s = 1, tanh_term = 0, log_n = 0, sum = 0;
  __device__ float value() const { return s * sum; }
};

template <class T>
__device__ inline bool active(const Recipe<T>& recipe) {
  return recipe.w || recipe.g || recipe.c || recipe.s;
}

// The recipe at one row, the same in all lanes.
template <class T>
__device__ inline Terms recipe_terms(const Recipe<T>& recipe, int64_t rows, int64_t b, int64_t h,
                                     int64_t r) {
  Terms terms;
  if (recipe.s) terms.s = recipe.s[h];
  if (recipe.c) terms.sum += recipe.c[h];
  if (recipe.w) {
    const T* const source = row_at(recipe.source, b, h, r);
    float f = 0;
    for (int64_t i = threadIdx.x % kWarp; i < recipe.size; i += kWarp) {
      const float x = to_float(source[i]);
      f = fmaf(recipe.w[h * recipe.size + i] * x, normal_at(x).below, f);
    }
    terms.tanh_term = tanh_of(sum_lanes<kWarp>(f));
    terms.sum += terms.tanh_term;
  }
  if (recipe.g) {
    terms.log_n = recipe.log_n[b * rows + r];
    terms.sum = fmaf(recipe.g[h], terms.log_n, terms.sum);
  }
  return terms;
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    finish_kernel(const __grid_constant__ Scale<T> scale, ScaleExtent extent, float* out,
                  float* slope) {
  const int64_t r = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t h = blockIdx.y, b = blockIdx.z;
  if (r >= extent.rows) return;
  const float finished = scale.rows.data ? *row_at(scale.rows, b, h, r) : 1;
  const Terms terms = recipe_terms(scale.recipe, extent.rows, b, h, r);
  if (threadIdx.x % kWarp != 0) return;
  const int64_t dense = (b * extent.heads + h) * extent.rows + r;
  out[dense] = finished * terms.value();
  if (slope) slope[dense] = finished * terms.s * (1 - terms.tanh_term * terms.tanh_term);
}

// Block x of a head sums the rows of its stretch into record x: w (size), then g, c, s.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    backward_kernel(const __grid_constant__ Scale<T> scale, ScaleExtent extent,
                    const float* d_scale, Rows<T> d_source,
                    const __grid_constant__ ScaleGradient<T> gradient, float* partial) {
  extern __shared__ float shared[];  // (kWarps, size + 3)
  const Recipe<T>& recipe = scale.recipe;
  const int64_t size = recipe.w ? recipe.size : 0;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* const sums = shared + warp * (size + 3);
  for (int64_t i = lane; i < size + 3; i += kWarp) sums[i] = 0;
  __syncwarp();
  const int64_t h = blockIdx.y;
  const int64_t all = extent.batch * extent.rows;
  const int64_t end = min(all, (int64_t{blockIdx.x} + 1) * kRowsOfBlock);
  for (int64_t at = int64_t{blockIdx.x} * kRowsOfBlock + warp; at < end; at += kWarps) {
    const int64_t b = at / extent.rows, r = at % extent.rows;
    const float d = d_scale[(b * extent.heads + h) * extent.rows + r];
    // A row that nobody reads may hold anything: 0 * inf must not reach the sums.
    const bool read = d != 0;
    Terms terms;
    if (active(recipe) && read) terms = recipe_terms(recipe, extent.rows, b, h, r);
    const float finished = scale.rows.data && read ? *row_at(scale.rows, b, h, r) : 1;
    if (gradient.rows.data && lane == 0)
      *row_at(gradient.rows, b, h, r) = read ? d * (active(recipe) ? terms.value() : 1) : 0;
    if (!active(recipe)) continue;
    const float d_recipe = read ? d * finished : 0, d_sum = d_recipe * terms.s;
    if (lane == 0) {
      sums[size] += d_sum * terms.log_n;
      sums[size + 1] += d_sum;
      sums[size + 2] += d_recipe * terms.sum;
    }
    const float d_f = d_sum * (1 - terms.tanh_term * terms.tanh_term);
    const T* const source = size > 0 ? row_at(recipe.source, b, h, r) : nullptr;
    T* const to = d_source.data ? row_at(d_source, b, h, r) : nullptr;
    for (int64_t i = lane; i < size; i += kWarp) {
      const float x = read ? to_float(source[i]) : 0;
      const Normal normal = normal_at(x);
      sums[i] = fmaf(d_f * x, normal.below, sums[i]);
      if (!to) continue;
      const float d_x =
          read ? d_f * recipe.w[h * size + i] * fmaf(x, normal.density, normal.below) : 0;
      to[i] = from_float<T>(d_x);
    }
  }
  __syncthreads();
  float* const record = partial + (int64_t{blockIdx.x} * extent.heads + h) * (size + 3);
  for (int64_t i = threadIdx.x; i < size + 3; i += kWarps * kWarp) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[w * (size + 3) + i];
    record[i] = sum;
  }
}

// Block (x, h): columns of head h's record.
template <class T>
__global__ void __launch_bounds__(kWarp* kColumnReducers)
    reduce_kernel(const float* partial, int64_t blocks, int64_t heads, int64_t size,
                  const __grid_constant__ ScaleGradient<T> gradient) {
  __shared__ float sums[kWarp];
  const int64_t h = blockIdx.y, width = size + 3;
  const int64_t first = int64_t{blockIdx.x} * kWarp;
  // sum_columns takes the block's columns from blockIdx.x itself.
  sum_columns(partial + h * width, blocks, heads * width, width, sums - first);
  if (threadIdx.y != 0) return;
  const int64_t at = first + threadIdx.x;
  if (at >= width) return;
  const float sum = sums[threadIdx.x];
  if (at < size) {
    if (gradient.w) gradient.w[h * size + at] = sum;
    return;
  }
  float* const numbers = at == size ? gradient.g : at == size + 1 ? gradient.c : gradient.s;
  if (numbers) numbers[h] = sum;
}

int64_t blocks_of(const ScaleExtent& extent) {
  return ceil_div(extent.batch * extent.rows, kRowsOfBlock);
}

}  // namespace

template <class T>
void finish_scales(const Scale<T>& scale, const ScaleExtent& extent, float* out, float* slope,
                   Stream stream) {
  if (extent.count() == 0) return;
  finish_kernel<<<dim3(static_cast<unsigned>(ceil_div(extent.rows, kWarps)),
                       static_cast<unsigned>(extent.heads), static_cast<unsigned>(extent.batch)),
                  kWarps * kWarp, 0, stream>>>(scale, extent, out, slope);
  check_launch("finish_scales");
}

template <class T>
int64_t scale_partial(const Scale<T>& scale, const ScaleExtent& extent) {
  return blocks_of(extent) * extent.heads * (scale.recipe.size + 3);
}

template <class T>
void scale_backward(const Scale<T>& scale, const ScaleExtent& extent, const float* d_scale,
                    bool own_source, const ScaleGradient<T>& gradient, float* partial,
                    Stream stream) {
  const int64_t size = scale.recipe.w ? scale.recipe.size : 0;
  const int64_t blocks = blocks_of(extent);
  const auto shared = static_cast<size_t>(kWarps * (size + 3)) * sizeof(float);
  if (blocks > 0)
    backward_kernel<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(extent.heads)),
                      kWarps * kWarp, shared, stream>>>(
        scale, extent, d_scale, own_source ? Rows<T>{} : gradient.source, gradient, partial);
  if (gradient.w || gradient.g || gradient.c || gradient.s)
    reduce_kernel<<<dim3(static_cast<unsigned>(ceil_div(size + 3, kWarp)),
                         static_cast<unsigned>(extent.heads)),
                    dim3(kWarp, kColumnReducers), 0, stream>>>(partial, blocks, extent.heads, size,
                                                               gradient);
  check_launch("scale_backward");
}

#define TEMPERA_INSTANTIATE(T)                                                              \
  template void finish_scales(const Scale<T>&, const ScaleExtent&, float*, float*, Stream); \
  template int64_t scale_partial(const Scale<T>&, const ScaleExtent&);                      \
  template void scale_backward(const Scale<T>&, const ScaleExtent&, const float*, bool,     \
                               const ScaleGradient<T>&, float*, Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
