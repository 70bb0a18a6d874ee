#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"

// The gradient of the bias: a block has a tile of query rows and one of keys, and goes over the
// heads and sequences that share it.
namespace tempera::kernels::cuda {
namespace {

constexpr int kKeys = 32;

template <class T, int kColumns, int kWarps_>
struct BiasTiles {
  static constexpr int kWarps = kWarps_;
  static constexpr int kStride = tile_stride<T>(kColumns);
  static constexpr int kRows = kTileRows * kWarps;
  static constexpr int kThreads = kWarps * kWarp;

  T q[kRows * kStride], d_out[kRows * kStride], k[kKeys * kStride], v[kKeys * kStride];

  __device__ void copy(const Problem<T>& p, const Backward<T>& g, int b, int h, int first_row,
                       int first_key) {
    const auto qk_size = static_cast<int>(p.shape.qk_size),
               v_size = static_cast<int>(p.shape.v_size);
    const auto q_rows = static_cast<int>(p.shape.q_rows),
               kv_rows = static_cast<int>(p.shape.kv_rows);
    const int kv_head = h / p.group();
    copy_rows<kColumns, kRows, kThreads>(q, row_at(p.q, b, h, 0), p.q.row, first_row, 0, q_rows,
                                         qk_size, p.whole);
    copy_rows<kColumns, kRows, kThreads>(d_out, row_at(g.d_out, b, h, 0), g.d_out.row, first_row, 0,
                                         q_rows, v_size, g.whole);
    copy_rows<kColumns, kKeys, kThreads>(k, row_at(p.k, b, kv_head, 0), p.k.row, first_key, 0,
                                         kv_rows, qk_size, p.whole);
    copy_rows<kColumns, kKeys, kThreads>(v, row_at(p.v, b, kv_head, 0), p.v.row, first_key, 0,
                                         kv_rows, v_size, p.whole);
    commit_copies();
  }
};

// sum += the gradients of the elements of which c and d are the products, the rows being two of
// head h and the keys those from first_key on.
template <class T>
__device__ inline void add_elements(const Problem<T>& p, const GradientRow (&row)[2], int b, int h,
                                    int first_key, const float (&c)[kKeys / 8][4],
                                    const float (&d)[kKeys / 8][4], float (&sum)[kKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
    Products products[4];
    Element elements[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = first_key + n * 8 + lane % 4 * 2 + e % 2, kv_head = h / p.group();
      products[e] = {j, 1, 1, c[n][e], d[n][e]};
      if (j >= p.shape.kv_rows) continue;
      if (p.a_k.data) products[e].a_k = *row_at(p.a_k, b, kv_head, j);
      if (p.a_v.data) products[e].a_v = *row_at(p.a_v, b, kv_head, j);
    }
    elements_of<false>(
        p, [&](int e) -> const GradientRow& { return row[e / 2]; }, products, elements);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[n][e] += elements[e].d_x;
  }
}

template <class T, int kColumns, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    bias_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g) {
  using Tiles = BiasTiles<T, kColumns, kWarps>;
  extern __shared__ __align__(128) unsigned char memory[];
  auto& tiles = *reinterpret_cast<Tiles*>(memory);
  const int key_tiles = static_cast<int>(ceil_div(p.shape.kv_rows, kKeys));
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kKeys;
  const int first_row = static_cast<int>(blockIdx.x) / key_tiles * Tiles::kRows;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp_row = static_cast<int>(threadIdx.x) / kWarp * kTileRows;
  const bool all_heads = g.d_bias.head == 0, all_batches = g.d_bias.batch == 0;
  const auto heads = static_cast<int>(p.shape.q_heads), batch = static_cast<int>(p.shape.batch);
  const int h_begin = all_heads ? 0 : static_cast<int>(blockIdx.y);
  const int b_begin = all_batches ? 0 : static_cast<int>(blockIdx.z);
  float sum[kKeys / 8][4] = {};
  int i[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) i[half] = first_row + warp_row + lane / 4 + half * 8;
  for (int b = b_begin; b < (all_batches ? batch : b_begin + 1); ++b)
    for (int h = h_begin; h < (all_heads ? heads : h_begin + 1); ++h) {
      GradientRow row[2];
      bool seen = false;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (i[half] < p.shape.q_rows) {
          row[half] = gradient_row(p, g, b, h, i[half]);
          const KeySpan keys = row[half].keys;
          seen = seen || max(keys.begin, first_key) < min(keys.end, first_key + kKeys);
        }
      if (!__syncthreads_or(seen)) continue;  // also: the tiles before are read
      tiles.copy(p, g, b, h, first_row, first_key);
      await_copies<0>();
      __syncthreads();
      float c[1][kKeys / 8][4], d[1][kKeys / 8][4];
      product_rows<kColumns>(c, tiles.q + warp_row * Tiles::kStride, tiles.k,
                             padded_depth(p.shape.qk_size));
      product_rows<kColumns>(d, tiles.d_out + warp_row * Tiles::kStride, tiles.v,
                             padded_depth(p.shape.v_size));
      add_elements(p, row, b, h, first_key, c[0], d[0], sum);
    }
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = first_key + n * 8 + lane % 4 * 2 + e % 2;
      if (i[e / 2] < p.shape.q_rows && column < p.shape.kv_rows)
        row_at(g.d_bias, b_begin, h_begin, i[e / 2])[column] = sum[n][e];
    }
}

template <class T, int kColumns>
using ChosenTiles = BiasTiles<T, kColumns, kColumns <= 128 ? 4 : 2>;

}  // namespace

template <class T>
int64_t bias_gradient_shared_bytes(const Shape& shape) {
  return most_bytes<T>(shape,
                       [&]<int kColumns, bool>() { return sizeof(ChosenTiles<T, kColumns>); });
}

template <class T>
void launch_bias_gradient(const Problem<T>& p, const Backward<T>& g, Stream stream) {
  const Shape& s = p.shape;
  const int64_t heads = g.d_bias.head == 0 ? 1 : s.q_heads;
  const int64_t batch = g.d_bias.batch == 0 ? 1 : s.batch;
  if (s.q_rows * s.kv_rows * batch == 0) return;
  with_columns(s, [&]<int kColumns>() {
    using Tiles = ChosenTiles<T, kColumns>;
    const auto kernel = bias_kernel<T, kColumns, Tiles::kWarps>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(sizeof(Tiles)));
    const int64_t tiles = ceil_div(s.q_rows, Tiles::kRows) * ceil_div(s.kv_rows, kKeys);
    kernel<<<dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batch)),
             Tiles::kThreads, sizeof(Tiles), stream>>>(p, g);
  });
  check_launch("attention_backward, bias");
}

template int64_t bias_gradient_shared_bytes<float>(const Shape&);
template int64_t bias_gradient_shared_bytes<BFloat16>(const Shape&);
template void launch_bias_gradient(const Problem<float>&, const Backward<float>&, Stream);
template void launch_bias_gradient(const Problem<BFloat16>&, const Backward<BFloat16>&, Stream);

}  // namespace tempera::kernels::cuda
