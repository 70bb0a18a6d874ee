#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"

// Gradients of queries, their scales, post and the bias. A block has 16 kWarps query rows of one
// head and goes over the keys that they see; for the bias, one tile of keys, over the heads and
// sequences that share it.
namespace tempera::kernels::cuda {
namespace {

constexpr int kKeys = 32;  // of a tile

template <class T, int kColumns, int kWarps>
struct QueryTiles {
  static constexpr int kStride = tile_stride<T>(kColumns);
  static constexpr int kRows = kTileRows * kWarps;
  static constexpr size_t kBytes =
      sizeof(T) * kStride * 2 * (kRows + kKeys) + sizeof(float) * 2 * kKeys;

  T *q, *d_out, *k, *v;
  float *a_k, *a_v;
  __device__ explicit QueryTiles(unsigned char* memory)
      : q(reinterpret_cast<T*>(memory)),
        d_out(q + kRows * kStride),
        k(d_out + kRows * kStride),
        v(k + kKeys * kStride),
        a_k(reinterpret_cast<float*>(v + kKeys * kStride)),
        a_v(a_k + kKeys) {}

  __device__ void copy_queries(const Problem<T>& p, const Backward<T>& g, int b, int h,
                               int first) const {
    const auto rows = static_cast<int>(p.shape.q_rows);
    copy_tile<kColumns>(q, kRows, padded_depth(p.shape.qk_size), first, 0, rows,
                        static_cast<int>(p.shape.qk_size), p.whole,
                        [&](int i) { return row_at(p.q, b, h, i); });
    copy_tile<kColumns>(d_out, kRows, padded_depth(p.shape.v_size), first, 0, rows,
                        static_cast<int>(p.shape.v_size), g.whole,
                        [&](int i) { return row_at(g.d_out, b, h, i); });
  }
  __device__ void copy_keys(const Problem<T>& p, int b, int h, int first) const {
    const auto rows = static_cast<int>(p.shape.kv_rows);
    for (int r = static_cast<int>(threadIdx.x); r < kKeys; r += kWarps * kWarp) {
      const bool inside = first + r < rows;
      a_k[r] = inside && p.a_k.data ? *row_at(p.a_k, b, h, first + r) : 1;
      a_v[r] = inside && p.a_v.data ? *row_at(p.a_v, b, h, first + r) : 1;
    }
    copy_tile<kColumns>(k, kKeys, padded_depth(p.shape.qk_size), first, 0, rows,
                        static_cast<int>(p.shape.qk_size), p.whole,
                        [&](int j) { return row_at(p.k, b, h, j); });
    copy_tile<kColumns>(v, kKeys, padded_depth(p.shape.v_size), first, 0, rows,
                        static_cast<int>(p.shape.v_size), p.whole,
                        [&](int j) { return row_at(p.v, b, h, j); });
  }
  // <q, k> and <d_out, v> of this warp's rows.
  __device__ void products(const Problem<T>& p, float (&c)[kKeys / 8][4],
                           float (&d)[kKeys / 8][4]) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    product_rows(c, q + warp * kTileRows * kStride, kStride, k, kStride,
                 padded_depth(p.shape.qk_size));
    product_rows(d, d_out + warp * kTileRows * kStride, kStride, v, kStride,
                 padded_depth(p.shape.v_size));
  }
};

// The rows that this lane has of a tile of query rows.
template <class T>
__device__ inline void lane_rows(const Problem<T>& p, const Backward<T>& g, int b, int h, int first,
                                 int (&i)[2], GradientRow (&row)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    i[half] = first + static_cast<int>(threadIdx.x) / kWarp * kTileRows + lane / 4 + half * 8;
    row[half] = GradientRow();
    if (i[half] < p.shape.q_rows) row[half] = gradient_row(p, g, b, h, i[half]);
  }
}

// The keys that any row of the block sees.
__device__ inline KeySpan shared_span(const GradientRow (&row)[2]) {
  __shared__ int begin, end;
  __syncthreads();  // those of an earlier call may still be read
  if (threadIdx.x == 0) {
    begin = INT32_MAX;
    end = 0;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (row[half].row.begin < row[half].row.end) {
      atomicMin(&begin, row[half].row.begin);
      atomicMax(&end, row[half].row.end);
    }
  __syncthreads();
  return {min(begin, end), end};
}

template <class T, int kColumns, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    query_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g) {
  using Tiles = QueryTiles<T, kColumns, kWarps>;
  extern __shared__ __align__(128) unsigned char memory[];
  const Tiles tiles(memory);
  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int kv_head = h / p.group();
  const int first_row = static_cast<int>(blockIdx.x) * Tiles::kRows;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  tiles.copy_queries(p, g, b, h, first_row);
  int i[2];
  GradientRow row[2];
  lane_rows(p, g, b, h, first_row, i, row);
  const KeySpan span = shared_span(row);
  float d_q[kColumns / 8][4] = {}, d_a_q[2] = {}, d_post[2] = {};
  for (int first = span.begin / kKeys * kKeys; first < span.end; first += kKeys) {
    tiles.copy_keys(p, b, kv_head, first);
    tile_wait<0>();
    __syncthreads();
    float c[kKeys / 8][4], d[kKeys / 8][4];
    tiles.products(p, c, d);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2, column = n * 8 + lane % 4 * 2 + e % 2;
        const float dot = c[n][e], a_k = tiles.a_k[column];
        const Element element =
            element_of(p, row[half], first + column, a_k, tiles.a_v[column], dot, d[n][e]);
        d_post[half] += element.d_post;
        d_a_q[half] = fmaf(element.d_x * p.scale * a_k, dot, d_a_q[half]);
        c[n][e] = element.d_x * row[half].row.factor * a_k;
      }
    add_product(d_q, c, tiles.k, Tiles::kStride, padded_depth(p.shape.qk_size));
    __syncthreads();
  }
  tile_wait<0>();
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    d_a_q[half] = sum_quad(d_a_q[half]);
    d_post[half] = sum_quad(d_post[half]);
    if (i[half] >= p.shape.q_rows) continue;
    const int64_t dense = (b * p.shape.q_heads + h) * p.shape.q_rows + i[half];
    add_recipe(g.own_q, h, dense, d_a_q[half], tiles.q + (i[half] - first_row) * Tiles::kStride,
               half, d_q);
    if (g.d_q.data)
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = n * 8 + lane % 4 * 2 + e;
          if (column < p.shape.qk_size)
            row_at(g.d_q, b, h, i[half])[column] = from_float<T>(d_q[n][half * 2 + e]);
        }
    if (lane % 4 != 0) continue;
    if (g.d_a_q) g.d_a_q[dense] = d_a_q[half];
    if (g.d_post.data) *row_at(g.d_post, b, h, i[half]) = d_post[half];
  }
}

template <class T, int kColumns, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    bias_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g) {
  using Tiles = QueryTiles<T, kColumns, kWarps>;
  extern __shared__ __align__(128) unsigned char memory[];
  const Tiles tiles(memory);
  const int key_tiles = static_cast<int>(ceil_div(p.shape.kv_rows, kKeys));
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kKeys;
  const int first_row = static_cast<int>(blockIdx.x) / key_tiles * Tiles::kRows;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool all_heads = g.d_bias.head == 0, all_batches = g.d_bias.batch == 0;
  const auto heads = static_cast<int>(p.shape.q_heads), batch = static_cast<int>(p.shape.batch);
  const int h_begin = all_heads ? 0 : static_cast<int>(blockIdx.y);
  const int b_begin = all_batches ? 0 : static_cast<int>(blockIdx.z);
  float sum[kKeys / 8][4] = {};
  int i[2] = {};
  for (int b = b_begin; b < (all_batches ? batch : b_begin + 1); ++b)
    for (int h = h_begin; h < (all_heads ? heads : h_begin + 1); ++h) {
      GradientRow row[2];
      lane_rows(p, g, b, h, first_row, i, row);
      const KeySpan span = shared_span(row);
      if (max(span.begin, first_key) >= min(span.end, first_key + kKeys)) continue;
      tiles.copy_queries(p, g, b, h, first_row);
      tiles.copy_keys(p, b, h / p.group(), first_key);
      tile_wait<0>();
      __syncthreads();
      float c[kKeys / 8][4], d[kKeys / 8][4];
      tiles.products(p, c, d);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = n * 8 + lane % 4 * 2 + e % 2;
          sum[n][e] += element_of(p, row[e / 2], first_key + column, tiles.a_k[column],
                                  tiles.a_v[column], c[n][e], d[n][e])
                           .d_x;
        }
      __syncthreads();
    }
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row =
          first_row + static_cast<int>(threadIdx.x) / kWarp * kTileRows + lane / 4 + e / 2 * 8;
      const int column = first_key + n * 8 + lane % 4 * 2 + e % 2;
      if (row < p.shape.q_rows && column < p.shape.kv_rows)
        row_at(g.d_bias, b_begin, h_begin, row)[column] = sum[n][e];
    }
}

// Blocks of kRows query rows.
template <class T, class Launch>
void with_tiles(const Shape& shape, Launch launch) {
  with_columns(shape, [&]<int kColumns>() {
    constexpr int kWarps = kColumns > 128 ? 2 : 4;
    launch.template operator()<kColumns, kWarps>();
  });
}

}  // namespace

template <class T>
void launch_query_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream) {
  const Shape& s = p.shape;
  if (s.batch * s.q_rows == 0) return;
  with_tiles<T>(s, [&]<int kColumns, int kWarps>() {
    using Tiles = QueryTiles<T, kColumns, kWarps>;
    const auto kernel = query_kernel<T, kColumns, kWarps>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(Tiles::kBytes));
    const dim3 grid(static_cast<unsigned>(ceil_div(s.q_rows, Tiles::kRows)),
                    static_cast<unsigned>(s.q_heads), static_cast<unsigned>(s.batch));
    kernel<<<grid, kWarps * kWarp, Tiles::kBytes, stream>>>(p, g);
  });
  check_launch("attention_backward, queries");
}

template <class T>
void launch_bias_gradient(const Problem<T>& p, const Backward<T>& g, Stream stream) {
  const Shape& s = p.shape;
  const int64_t heads = g.d_bias.head == 0 ? 1 : s.q_heads;
  const int64_t batch = g.d_bias.batch == 0 ? 1 : s.batch;
  if (s.q_rows * s.kv_rows * batch == 0) return;
  with_tiles<T>(s, [&]<int kColumns, int kWarps>() {
    using Tiles = QueryTiles<T, kColumns, kWarps>;
    const auto kernel = bias_kernel<T, kColumns, kWarps>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(Tiles::kBytes));
    const int64_t tiles = ceil_div(s.q_rows, Tiles::kRows) * ceil_div(s.kv_rows, kKeys);
    kernel<<<dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batch)),
             kWarps * kWarp, Tiles::kBytes, stream>>>(p, g);
  });
  check_launch("attention_backward, bias");
}

#define TEMPERA_INSTANTIATE(T)                                                         \
  template void launch_query_gradients(const Problem<T>&, const Backward<T>&, Stream); \
  template void launch_bias_gradient(const Problem<T>&, const Backward<T>&, Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
