#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"

// Gradients of queries, their scales and post: a block has 16 kM kWarps query rows of one head and
// goes over the keys that they see.
namespace tempera::kernels::cuda {
namespace {

// A block's own rows are queries; keys come in tiles.
template <class Shape>
struct QueryShape : Shape {
  static constexpr int kKeys = Shape::kOthers;
};

// A tile of keys.
template <class T, class S>
struct alignas(16) KeyStage {
  T k[S::kKeys * S::kStride], v[S::kKeys * S::kStride];
  float a_k[S::kKeys], a_v[S::kKeys];  // undefined where the call has no such scales

  __device__ void copy(const Problem<T>& p, int b, int h, int first, KeySpan span) {
    const auto numbers = [&](const Rows<const float>& from, float* to) {
      if (from.data)
        copy_numbers<S::kKeys, S::kThreads>(to, row_at(from, b, h, 0), from.row, first, span.begin,
                                            span.end);
    };
    numbers(p.a_k, a_k);
    numbers(p.a_v, a_v);
    copy_rows<S::kColumns, S::kKeys, S::kThreads>(k, row_at(p.k, b, h, 0), p.k.row, first,
                                                  span.begin, span.end,
                                                  static_cast<int>(p.shape.qk_size), p.whole);
    copy_rows<S::kColumns, S::kKeys, S::kThreads>(v, row_at(p.v, b, h, 0), p.v.row, first,
                                                  span.begin, span.end,
                                                  static_cast<int>(p.shape.v_size), p.whole);
    commit_copies();
  }
};

template <class T, class S>
struct QueryTiles {
  T q[S::kRows * S::kStride], d_out[S::kRows * S::kStride];
  KeyStage<T, S> stage[S::kStages];
  GradientRow rows[S::kRows];

  __device__ void copy(const Problem<T>& p, const Backward<T>& g, int b, int h, int first) {
    const auto last = static_cast<int>(p.shape.q_rows);
    copy_rows<S::kColumns, S::kRows, S::kThreads>(q, row_at(p.q, b, h, 0), p.q.row, first, 0, last,
                                                  static_cast<int>(p.shape.qk_size), p.whole);
    copy_rows<S::kColumns, S::kRows, S::kThreads>(d_out, row_at(g.d_out, b, h, 0), g.d_out.row,
                                                  first, 0, last, static_cast<int>(p.shape.v_size),
                                                  g.whole);
    commit_copies();
  }
};

// What a warp sums: the gradients of its queries, and of each row's scale and post.
template <class S>
struct Sums {
  float q[S::kM][S::kColumns / 8][4] = {}, a_q[S::kM][2] = {}, post[S::kM][2] = {};
};

// Of the block, a lane's row of half `half` of 16 rows.
__device__ inline int row_of(int warp_row, int m, int half) {
  return warp_row + m * kTileRows + half * 8 + static_cast<int>(threadIdx.x) % kWarp / 4;
}

// Fills in the rows; returns the keys that any of them sees.
template <class T, class S>
__device__ KeySpan load_rows(const Problem<T>& p, const Backward<T>& g, int b, int h, int first,
                             GradientRow* rows) {
  __shared__ int begin, end;
  if (threadIdx.x == 0) {
    begin = INT32_MAX;
    end = 0;
  }
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.x); r < S::kRows; r += S::kThreads) {
    GradientRow row;
    if (first + r < p.shape.q_rows) row = gradient_row(p, g, b, h, first + r);
    rows[r] = row;
    if (row.keys.begin >= row.keys.end) continue;
    atomicMin(&begin, row.keys.begin);
    atomicMax(&end, row.keys.end);
  }
  __syncthreads();
  return {min(begin, end), end};
}

// Products c = <q, k> and d = <d_out, v> to gradients of the logits, in c, of half `half` of a
// tile's rows.
template <class T, int kTiles>
__device__ inline void plain_elements(float factor, float lse, float shift, int half,
                                      float (&c)[kTiles][4], const float (&d)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = half * 2; e < half * 2 + 2; ++e)
      c[n][e] = power_of<T>(fmaf(c[n][e], factor, -lse)) * (d[n][e] - shift);
}

template <class T, class S, int kTiles>
__device__ inline void all_elements(const Problem<T>& p, const GradientRow& row,
                                    const KeyStage<T, S>& stage, int first, int half, float& d_a_q,
                                    float& d_post, float (&c)[kTiles][4],
                                    const float (&d)[kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kCount = 4;
#pragma unroll
  for (int begin = 0; begin < kTiles * 2; begin += kCount) {
    Products products[kCount];
    Element elements[kCount];
    const auto column = [&](int i) { return (begin + i) / 2 * 8 + lane % 4 * 2 + i % 2; };
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int n = (begin + i) / 2, e = half * 2 + i % 2;
      products[i] = {first + column(i), 1, 1, c[n][e], d[n][e]};
      if (!S::kPlain && p.a_k.data) products[i].a_k = stage.a_k[column(i)];
      if (!S::kPlain && p.a_v.data) products[i].a_v = stage.a_v[column(i)];
    }
    elements_of<S::kPlain>(
        p, [&](int) -> const GradientRow& { return row; }, products, elements);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float& x = c[(begin + i) / 2][half * 2 + i % 2];
      x = elements[i].d_x * products[i].a_k;
      d_post += elements[i].d_post;
      // Products of hidden keys may be anything.
      if (elements[i].d_x != 0) d_a_q = fmaf(x, products[i].dot, d_a_q);
    }
  }
}

template <class T, class S, int kTiles>
__device__ inline void elements_of_tile(const Problem<T>& p, const QueryTiles<T, S>& tiles,
                                        const KeyStage<T, S>& stage, int warp_row, int first,
                                        bool plain, Sums<S>& sums, float (&c)[S::kM][kTiles][4],
                                        const float (&d)[S::kM][kTiles][4]) {
#pragma unroll
  for (int m = 0; m < S::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const GradientRow& row = tiles.rows[row_of(warp_row, m, half)];
      if (plain)
        plain_elements<T>(row.factor, row.lse, row.shift, half, c[m], d[m]);
      else
        all_elements<T, S>(p, row, stage, first, half, sums.a_q[m][half], sums.post[m][half], c[m],
                           d[m]);
    }
}

template <class T, class S>
__device__ inline void write_gradients(const Problem<T>& p, const Backward<T>& g,
                                       const QueryTiles<T, S>& tiles, int b, int h, int first_row,
                                       int warp_row, Sums<S>& sums) {
  const auto q_rows = static_cast<int>(p.shape.q_rows);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool pairs = paired(g.d_q);
#pragma unroll
  for (int m = 0; m < S::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum_a_q = sum_quad(sums.a_q[m][half]) * p.scale;
      const float sum_post = sum_quad(sums.post[m][half]);
      const int r = row_of(warp_row, m, half), i = first_row + r;
      if (i >= q_rows) continue;
      const int64_t dense = (b * p.shape.q_heads + h) * p.shape.q_rows + i;
      scale_half(sums.q[m], half, tiles.rows[r].factor / g.factor_unit);
      add_recipe(g.own_q, h, dense, sum_a_q, tiles.q + r * S::kStride, half, sums.q[m]);
      if (g.d_q.data) write_row(row_at(g.d_q, b, h, i), p.shape.qk_size, pairs, half, sums.q[m]);
      if (lane % 4 != 0) continue;
      if (g.d_a_q) g.d_a_q[dense] = sum_a_q;
      if (g.d_post.data) *row_at(g.d_post, b, h, i) = sum_post;
    }
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    query_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g) {
  constexpr int kColumns = S::kColumns, kM = S::kM, kKeys = S::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  auto& tiles = *reinterpret_cast<QueryTiles<T, S>*>(memory);
  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int kv_head = h / p.group();
  const int depth = padded_depth(p.shape.qk_size), width = padded_depth(p.shape.v_size);
  // The last rows of a causal call see the most keys: they come first.
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * S::kRows;
  tiles.copy(p, g, b, h, first_row);
  const KeySpan span = load_rows<T, S>(p, g, b, h, first_row, tiles.rows);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * S::kWarpRows;
  const int lane_row = warp_row + static_cast<int>(threadIdx.x) % kWarp % S::kWarpRows;
  const WarpSpan keys =
      warp_span(tiles.rows[lane_row].keys, first_row + lane_row < static_cast<int>(p.shape.q_rows));
  const bool bare = !g.d_a_q && !g.d_post.data;  // no sums beside the gradients of rows
  const int begin = span.begin / kKeys * kKeys;
  const int count = (span.end - begin + kKeys - 1) / kKeys;
  const auto copy = [&](int at) {
    tiles.stage[at % S::kStages].copy(p, b, kv_head, begin + at * kKeys, span);
  };
  Sums<S> sums;
  if (S::kStages == 2 && count > 0) copy(0);
  for (int at = 0; at < count; ++at) {
    if (S::kStages == 1) {
      __syncthreads();
      copy(at);
    }
    await_copies<0>();
    __syncthreads();
    if (S::kStages == 2 && at + 1 < count) copy(at + 1);
    const KeyStage<T, S>& stage = tiles.stage[at % S::kStages];
    const int first = begin + at * kKeys;
    if (!keys.touches(first, kKeys)) continue;
    float c[kM][kKeys / 8][4], d[kM][kKeys / 8][4];
    product_rows<kColumns>(c, tiles.q + warp_row * S::kStride, stage.k, depth);
    product_rows<kColumns>(d, tiles.d_out + warp_row * S::kStride, stage.v, width);
    const bool plain = S::kPlain && bare && keys.holds(first, kKeys);
    elements_of_tile(p, tiles, stage, warp_row, first, plain, sums, c, d);
    add_product(sums.q, c, stage.k, depth);
  }
  await_copies<0>();
  __syncthreads();  // the queries are read once more
  write_gradients(p, g, tiles, b, h, first_row, warp_row, sums);
}

// Two tiles of rows a warp read keys and values half as often; only rows of some length, in a plain
// kernel, are worth the registers.
template <class T, int kColumns, bool kPlain>
struct Shapes {
  template <int kStages>
  struct Chosen {
    static constexpr int kM = kPlain && kColumns == 128 ? 2 : 1;
    static constexpr int kKeys = sizeof(T) == 2 && kM == 1 && kColumns <= 128 ? 64 : 32;
    static constexpr int kWarps = kColumns > 128 ? 2 : 4;
    using Type = QueryShape<BackwardShape<T, kColumns, kWarps, kM, kKeys, kStages, kPlain>>;
    static constexpr size_t kBytes = sizeof(QueryTiles<T, Type>);
  };
  using Staged = StagedShapes<T, Chosen>;
};

}  // namespace

template <class T>
int64_t query_gradient_shared_bytes(const Shape& shape) {
  return most_bytes<T>(shape, [&]<int kColumns, bool kPlain>() {
    return Shapes<T, kColumns, kPlain>::Staged::kLeastBytes;
  });
}

template <class T>
void launch_query_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream) {
  const Shape& s = p.shape;
  if (s.batch * s.q_rows == 0) return;
  with_kernel<T>(s, is_plain(p), [&]<int kColumns, bool kPlain>() {
    Shapes<T, kColumns, kPlain>::Staged::launch([&]<class Chosen>(Chosen) {
      using S = typename Chosen::Type;
      const auto kernel = query_kernel<T, S>;
      if (!allow_shared_bytes(kernel, Chosen::kBytes)) return false;
      const dim3 grid(static_cast<unsigned>(ceil_div(s.q_rows, S::kRows)),
                      static_cast<unsigned>(s.q_heads), static_cast<unsigned>(s.batch));
      kernel<<<grid, S::kThreads, Chosen::kBytes, stream>>>(p, g);
      return true;
    });
  });
  check_launch("attention_backward, queries");
}

template int64_t query_gradient_shared_bytes<float>(const Shape&);
template int64_t query_gradient_shared_bytes<BFloat16>(const Shape&);
template void launch_query_gradients(const Problem<float>&, const Backward<float>&, Stream);
template void launch_query_gradients(const Problem<BFloat16>&, const Backward<BFloat16>&, Stream);

}  // namespace tempera::kernels::cuda
