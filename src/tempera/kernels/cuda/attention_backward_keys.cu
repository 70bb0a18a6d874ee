#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"

// Gradients of keys, values and their scales: a block has 16 kWarps keys and goes over the query
// rows that may see them. Products are transposed, so that rows are keys: what a lane sums stays
// with it.
namespace tempera::kernels::cuda {
namespace {

template <class T, int kColumns, int kWarps, int kQueries>
struct KeyTiles {
  static constexpr int kStride = tile_stride<T>(kColumns);
  static constexpr int kKeys = kTileRows * kWarps;
  static constexpr size_t kBytes =
      sizeof(GradientRow) * kQueries + sizeof(T) * kStride * 2 * (kKeys + kQueries);

  GradientRow* rows;
  T *k, *v, *q, *d_out;
  __device__ explicit KeyTiles(unsigned char* memory)
      : rows(reinterpret_cast<GradientRow*>(memory)),
        k(reinterpret_cast<T*>(rows + kQueries)),
        v(k + kKeys * kStride),
        q(v + kKeys * kStride),
        d_out(q + kQueries * kStride) {}
};

// The query rows that may see keys [begin, end).
template <class T>
__device__ KeySpan query_span(const Problem<T>& p, int begin, int end) {
  int64_t first = 0, last = p.shape.q_rows;
  const int64_t offset = p.mask.query_offset;
  if (p.mask.causal) first = max(first, begin - offset);
  if (p.mask.window > 0) {
    first = max(first, begin - p.mask.window + 1 - offset);
    last = min(last, end - 1 + p.mask.window - offset);
  }
  first = min(max(first, int64_t{0}), p.shape.q_rows);
  return {static_cast<int>(first), static_cast<int>(max(last, first))};
}

template <class T, int kTiles>
__device__ void write_rows(const Rows<T>& to, int b, int h, const int (&key)[2], int rows,
                           int64_t size, const float (&c)[kTiles][4]) {
  if (!to.data) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e % 2;
      if (column < size && key[e / 2] < rows)
        row_at(to, b, h, key[e / 2])[column] = from_float<T>(c[n][e]);
    }
}

template <class T, int kColumns, int kWarps, int kQueries>
__global__ void __launch_bounds__(kWarps* kWarp)
    key_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g) {
  using Tiles = KeyTiles<T, kColumns, kWarps, kQueries>;
  constexpr int kStride = Tiles::kStride;
  extern __shared__ __align__(128) unsigned char memory[];
  const Tiles tiles(memory);
  const int b = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y);
  const auto rows = static_cast<int>(p.shape.kv_rows);
  const int first_key = static_cast<int>(blockIdx.x) * Tiles::kKeys;
  const int last_key = min(rows, first_key + Tiles::kKeys);
  const int depth = padded_depth(p.shape.qk_size), width = padded_depth(p.shape.v_size);
  const auto qk_size = static_cast<int>(p.shape.qk_size), v_size = static_cast<int>(p.shape.v_size);
  copy_tile<kColumns>(tiles.k, Tiles::kKeys, depth, first_key, 0, rows, qk_size, p.whole,
                      [&](int j) { return row_at(p.k, b, kv_head, j); });
  copy_tile<kColumns>(tiles.v, Tiles::kKeys, width, first_key, 0, rows, v_size, p.whole,
                      [&](int j) { return row_at(p.v, b, kv_head, j); });

  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  int key[2];
  float a_k[2] = {1, 1}, a_v[2] = {1, 1}, d_a_k[2] = {}, d_a_v[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    key[half] = first_key + warp * kTileRows + lane / 4 + half * 8;
    if (key[half] >= rows) continue;
    if (p.a_k.data) a_k[half] = *row_at(p.a_k, b, kv_head, key[half]);
    if (p.a_v.data) a_v[half] = *row_at(p.a_v, b, kv_head, key[half]);
  }
  float d_k[kColumns / 8][4] = {}, d_v[kColumns / 8][4] = {};
  const KeySpan span = query_span(p, first_key, last_key);
  for (int h = kv_head * p.group(); h < (kv_head + 1) * p.group(); ++h)
    for (int first = span.begin; first < span.end; first += kQueries) {
      bool seen = false;
      for (int r = static_cast<int>(threadIdx.x); r < kQueries; r += kWarps * kWarp) {
        GradientRow row;
        if (first + r < span.end) row = gradient_row(p, g, b, h, first + r);
        tiles.rows[r] = row;
        seen = seen || max(row.row.begin, first_key) < min(row.row.end, last_key);
      }
      if (!__syncthreads_or(seen)) continue;
      copy_tile<kColumns>(tiles.q, kQueries, depth, first, 0, span.end, qk_size, p.whole,
                          [&](int i) { return row_at(p.q, b, h, i); });
      copy_tile<kColumns>(tiles.d_out, kQueries, width, first, 0, span.end, v_size, g.whole,
                          [&](int i) { return row_at(g.d_out, b, h, i); });
      tile_wait<0>();
      __syncthreads();
      float c[kQueries / 8][4], d[kQueries / 8][4];
      product_rows(c, tiles.k + warp * kTileRows * kStride, kStride, tiles.q, kStride, depth);
      product_rows(d, tiles.v + warp * kTileRows * kStride, kStride, tiles.d_out, kStride, width);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2;
          const GradientRow& row = tiles.rows[n * 8 + lane % 4 * 2 + e % 2];
          const float dot = c[n][e], product = d[n][e];
          const Element element = element_of(p, row, key[half], a_k[half], a_v[half], dot, product);
          d_a_k[half] = fmaf(element.d_x * row.row.factor, dot, d_a_k[half]);
          d_a_v[half] = fmaf(element.weight, product, d_a_v[half]);
          c[n][e] = element.d_x * row.row.factor * a_k[half];
          d[n][e] = element.weight * a_v[half];
        }
      add_product(d_k, c, tiles.q, kStride, depth);
      add_product(d_v, d, tiles.d_out, kStride, width);
      __syncthreads();
    }
  tile_wait<0>();
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum_k = sum_quad(d_a_k[half]), sum_v = sum_quad(d_a_v[half]);
    if (key[half] >= rows) continue;
    const int64_t dense = (b * p.shape.kv_heads + kv_head) * p.shape.kv_rows + key[half];
    const int row = (key[half] - first_key) * kStride;
    add_recipe(g.own_k, kv_head, dense, sum_k, tiles.k + row, half, d_k);
    add_recipe(g.own_v, kv_head, dense, sum_v, tiles.v + row, half, d_v);
    if (lane % 4 != 0) continue;
    if (g.d_a_k) g.d_a_k[dense] = sum_k;
    if (g.d_a_v) g.d_a_v[dense] = sum_v;
  }
  write_rows(g.d_k, b, kv_head, key, rows, p.shape.qk_size, d_k);
  write_rows(g.d_v, b, kv_head, key, rows, p.shape.v_size, d_v);
}

}  // namespace

template <class T>
void launch_key_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream) {
  if (p.shape.batch * p.shape.kv_rows == 0) return;
  with_columns(p.shape, [&]<int kColumns>() {
    constexpr int kWarps = kColumns > 128 ? 2 : 4;
    using Tiles = KeyTiles<T, kColumns, kWarps, 32>;
    const auto kernel = key_kernel<T, kColumns, kWarps, 32>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(Tiles::kBytes));
    const dim3 grid(static_cast<unsigned>(ceil_div(p.shape.kv_rows, Tiles::kKeys)),
                    static_cast<unsigned>(p.shape.kv_heads), static_cast<unsigned>(p.shape.batch));
    kernel<<<grid, kWarps * kWarp, Tiles::kBytes, stream>>>(p, g);
  });
  check_launch("attention_backward, keys");
}

template void launch_key_gradients(const Problem<float>&, const Backward<float>&, Stream);
template void launch_key_gradients(const Problem<BFloat16>&, const Backward<BFloat16>&, Stream);

}  // namespace tempera::kernels::cuda
