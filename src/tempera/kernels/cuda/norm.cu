#include "tempera/base/error.h"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/fused.h"
#include "tempera/kernels/cuda/reduce.cuh"

namespace tempera::kernels::cuda {
namespace {

// A row is held in the registers of kWarps warps, up to kMaxChunks packs a lane; a block has eight
// warps or one row's.
constexpr int kMaxChunks = 4;
constexpr int64_t kColumnsPerWarp = kMaxChunks * kWarp * kPack;
static_assert(kWidestNorm == 16 * kColumnsPerWarp);
constexpr int64_t kBackwardBlocks = 264;  // of the partial sums; a number of its own, for the bits

template <int kWarps>
struct Layout {
  static constexpr int kThreads = kWarps < 8 ? 8 * kWarp : kWarps * kWarp;
  static constexpr int kRows = kThreads / (kWarps * kWarp);

  __device__ static int row() { return static_cast<int>(threadIdx.x) / (kWarps * kWarp); }
  __device__ static int64_t column(int chunk) {
    const int thread = static_cast<int>(threadIdx.x) % (kWarps * kWarp);
    return (int64_t{chunk} * kWarps * kWarp + thread) * kPack;
  }

  // Over the row's warps. All threads of the block call it.
  __device__ static float sum(float value) {
    value = sum_lanes<kWarp>(value);
    if constexpr (kWarps > 1) {
      __shared__ float shared[kThreads / kWarp];
      __syncthreads();
      if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
      __syncthreads();
      value = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) value += shared[row() * kWarps + i];
    }
    return value;
  }
};

template <class T, int kWarps, int kChunks>
__global__ void __launch_bounds__(Layout<kWarps>::kThreads)
    forward_kernel(const __grid_constant__ NormParams<T> p,
                   const __grid_constant__ NormOutputs<T> out, bool whole) {
  using L = Layout<kWarps>;
  const int64_t r = int64_t{blockIdx.x} * L::kRows + L::row();
  const bool active = r < p.rows;
  float h[kChunks][kPack] = {};
  float total = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t at = r * p.size + L::column(c);
    if (!active || L::column(c) >= p.size) continue;
    load_floats(p.x + at, whole, h[c]);
    if (p.residual) {
      float other[kPack];
      load_floats(p.residual + at, whole, other);
#pragma unroll
      for (int i = 0; i < kPack; ++i) h[c][i] += other[i];
      const Pack<T> rounded = pack_of<T>(h[c]);
      store_pack(out.h + at, rounded, whole);
      unpack(rounded, h[c]);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) total += h[c][i];
  }
  const auto n = static_cast<float>(p.size);
  const float mean = p.centred ? L::sum(total) / n : 0;
  float square = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
    if (active && L::column(c) < p.size)
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        h[c][i] -= mean;
        square = fmaf(h[c][i], h[c][i], square);
      }
  const float rstd = rsqrtf(L::sum(square) / n + p.epsilon);
  if (!active) return;
  if (L::column(0) == 0) {
    if (out.mean) out.mean[r] = mean;
    if (out.rstd) out.rstd[r] = rstd;
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t column = L::column(c);
    if (column >= p.size) continue;
    float gain[kPack], bias[kPack], y[kPack];
    if (p.gain) load_floats(p.gain + column, whole, gain);
    if (p.bias) load_floats(p.bias + column, whole, bias);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      y[i] = h[c][i] * rstd;
      if (p.gain) y[i] *= gain[i];
      if (p.bias) y[i] += bias[i];
    }
    store_pack(out.y + r * p.size + column, pack_of<T>(y), whole);
  }
}

// A row of the backward pass in registers.
template <class T, int kWarps, int kChunks>
struct BackwardRow {
  using L = Layout<kWarps>;
  int64_t r;
  bool active;
  float mean, rstd;
  Pack<T> x[kChunks], dy[kChunks], past[kChunks];

  __device__ BackwardRow(const NormParams<T>& p, const NormGradients<T>& g, int64_t row,
                         int64_t end, bool whole)
      : r(row),
        active(r < end),
        mean(active && p.centred ? g.mean[r] : 0),
        rstd(active ? g.rstd[r] : 0) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t at = r * p.size + L::column(c);
      if (!active || L::column(c) >= p.size) continue;
      x[c] = load_pack(p.x + at, whole);
      dy[c] = load_pack(g.d_y + at, whole);
      if (g.d_h) past[c] = load_pack(g.d_h + at, whole);
    }
  }

  __device__ float normed(int chunk, int i) const { return (x[chunk].get(i) - mean) * rstd; }

  // product: the mean of the normed row times its gradient, total: that of the gradient.
  __device__ void write(const NormParams<T>& p, const NormGradients<T>& g, float product,
                        float total, bool whole) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t at = r * p.size + L::column(c);
      if (!active || L::column(c) >= p.size) continue;
      float d[kPack] = {}, gain[kPack];
      if (g.d_h) unpack(past[c], d);
      if (p.gain) load_floats(p.gain + L::column(c), whole, gain);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        float scaled = dy[c].get(i);
        if (p.gain) scaled *= gain[i];
        d[i] = fmaf(rstd, scaled - total - normed(c, i) * product, d[i]);
      }
      store_pack(g.d_x + at, pack_of<T>(d), whole);
    }
  }
};

// Partial sums of block b: row b of (kBackwardBlocks, 2 * size), those of the gain first.
template <int kWarps, bool kBias, int kChunks, int kBiasChunks>
__device__ inline void write_sums(const float (&d_gain)[kChunks][kPack],
                                  const float (&d_bias)[kBiasChunks][kPack], int64_t size,
                                  float* partial) {
  using L = Layout<kWarps>;
  extern __shared__ float shared[];  // (kRows, size)
#pragma unroll
  for (int bias = 0; bias < (kBias ? 2 : 1); ++bias) {
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      if (L::column(c) < size)
#pragma unroll
        for (int i = 0; i < kPack; ++i)
          shared[L::row() * size + L::column(c) + i] =
              bias == 1 ? d_bias[kBias ? c : 0][i] : d_gain[c][i];
    __syncthreads();
    for (int64_t column = threadIdx.x; column < size; column += L::kThreads) {
      float sum = 0;
      for (int row = 0; row < L::kRows; ++row) sum += shared[row * size + column];
      partial[(int64_t{blockIdx.x} * 2 + bias) * size + column] = sum;
    }
  }
}

template <class T, int kWarps, int kChunks, bool kBias>
__global__ void __launch_bounds__(Layout<kWarps>::kThreads, kWarps < 16 ? 2 : 1)
    backward_kernel(const __grid_constant__ NormParams<T> p,
                    const __grid_constant__ NormGradients<T> g, float* partial, bool whole) {
  using L = Layout<kWarps>;
  float d_gain[kChunks][kPack] = {}, d_bias[kBias ? kChunks : 1][kPack] = {};
  const int64_t rows = ceil_div(p.rows, int64_t{L::kRows} * gridDim.x) * L::kRows;
  const int64_t begin = int64_t{blockIdx.x} * rows, end = min(p.rows, begin + rows);
  const auto n = static_cast<float>(p.size);
  for (int64_t base = begin; base < end; base += L::kRows) {
    const BackwardRow<T, kWarps, kChunks> row(p, g, base + L::row(), end, whole);
    float product = 0, total = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (!row.active || L::column(c) >= p.size) continue;
      float gain[kPack];
      if (p.gain) load_floats(p.gain + L::column(c), whole, gain);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float normed = row.normed(c, i);
        const float d = row.dy[c].get(i);
        d_gain[c][i] = fmaf(d, normed, d_gain[c][i]);
        if constexpr (kBias) d_bias[c][i] += d;
        const float scaled = p.gain ? d * gain[i] : d;
        product = fmaf(scaled, normed, product);
        total += scaled;
      }
    }
    product = L::sum(product) / n;
    total = p.centred ? L::sum(total) / n : 0;
    row.write(p, g, product, total, whole);
  }
  if (!g.d_gain && !g.d_bias) return;
  write_sums<kWarps, kBias>(d_gain, d_bias, p.size, partial);
}

__global__ void __launch_bounds__(kWarp* kColumnReducers)
    reduce_kernel(const float* partial, int64_t blocks, int64_t size, float* d_gain,
                  float* d_bias) {
  const bool bias = blockIdx.y == 1;
  float* const out = bias ? d_bias : d_gain;
  if (out) sum_columns(partial + (bias ? size : 0), blocks, 2 * size, size, out);
}

template <class T>
void check_norm(const NormParams<T>& p) {
  TEMPERA_CHECK(takes_columns(p.size) && p.size <= kWidestNorm, "norm of rows of ", p.size,
                " columns: a multiple of 8 up to ", kWidestNorm, " expected");
  TEMPERA_CHECK(p.rows >= 0, "norm of ", p.rows, " rows");
}

// Calls kernel.template operator()<kWarps, kChunks>().
template <class Kernel>
void with_layout(int64_t size, Kernel kernel) {
  constexpr int64_t kChunkColumns = kWarp * kPack;
  if (size <= kChunkColumns) return kernel.template operator()<1, 1>();
  if (size <= 2 * kChunkColumns) return kernel.template operator()<1, 2>();
  if (size <= 3 * kChunkColumns) return kernel.template operator()<1, 3>();
  if (size <= 4 * kChunkColumns) return kernel.template operator()<1, 4>();
  if (size <= 8 * kChunkColumns) return kernel.template operator()<4, 2>();
  if (size <= 16 * kChunkColumns) return kernel.template operator()<4, 4>();
  return kernel.template operator()<16, 4>();
}

}  // namespace

template <class T>
void norm_forward(const NormParams<T>& params, const NormOutputs<T>& outputs, Stream stream) {
  check_norm(params);
  TEMPERA_CHECK(!params.residual || outputs.h, "norm: a residual is given, and nowhere to put h");
  if (params.rows == 0) return;
  const bool whole = aligned(params.x, params.size) && aligned(params.residual, 0) &&
                     aligned(outputs.h, 0) && aligned(outputs.y, 0) && aligned(params.gain, 0) &&
                     aligned(params.bias, 0);
  with_layout(params.size, [&]<int kWarps, int kChunks>() {
    using L = Layout<kWarps>;
    forward_kernel<T, kWarps, kChunks>
        <<<static_cast<unsigned>(ceil_div(params.rows, L::kRows)), L::kThreads, 0, stream>>>(
            params, outputs, whole);
  });
  check_launch("norm_forward");
}

size_t norm_backward_workspace(int64_t rows, int64_t size) {
  return rows == 0 ? 0 : sizeof(float) * static_cast<size_t>(kBackwardBlocks * 2 * size);
}

template <class T>
void norm_backward(const NormParams<T>& params, const NormGradients<T>& gradients, void* workspace,
                   Stream stream) {
  check_norm(params);
  TEMPERA_CHECK(!params.centred || gradients.mean, "norm: a centred one, and no mean");
  const bool whole = aligned(params.x, params.size) && aligned(gradients.d_y, 0) &&
                     aligned(gradients.d_h, 0) && aligned(gradients.d_x, 0) &&
                     aligned(params.gain, 0);
  auto* partial = static_cast<float*>(workspace);
  int64_t blocks = 0;
  if (params.rows > 0)
    with_layout(params.size, [&]<int kWarps, int kChunks>() {
      using L = Layout<kWarps>;
      blocks = std::min(kBackwardBlocks, ceil_div(params.rows, L::kRows));
      const size_t shared = sizeof(float) * static_cast<size_t>(L::kRows * params.size);
      const auto launch = [&](auto kernel) {
        if (shared > 48 * 1024)
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared));
        kernel<<<static_cast<unsigned>(blocks), L::kThreads, shared, stream>>>(params, gradients,
                                                                               partial, whole);
      };
      if (gradients.d_bias)
        launch(backward_kernel<T, kWarps, kChunks, true>);
      else
        launch(backward_kernel<T, kWarps, kChunks, false>);
    });
  if (gradients.d_gain || gradients.d_bias)
    reduce_kernel<<<dim3(static_cast<unsigned>(ceil_div(params.size, kWarp)), 2),
                    dim3(kWarp, kColumnReducers), 0, stream>>>(partial, blocks, params.size,
                                                               gradients.d_gain, gradients.d_bias);
  check_launch("norm_backward");
}

#define TEMPERA_INSTANTIATE(T)                                                     \
  template void norm_forward(const NormParams<T>&, const NormOutputs<T>&, Stream); \
  template void norm_backward(const NormParams<T>&, const NormGradients<T>&, void*, Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
