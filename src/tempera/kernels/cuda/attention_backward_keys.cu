#include "tempera/kernels/cuda/attention_backward.cuh"
#include "tempera/kernels/cuda/error.h"

// Gradients of keys, values and their scales: a block has 16 kM kWarps keys and goes over the query
// rows that may see them. Products are transposed, so that rows are keys: what a lane sums stays
// with it.
namespace tempera::kernels::cuda {
namespace {

// A block's own rows are keys; query rows come in tiles.
template <class Shape>
struct KeyShape : Shape {
  static constexpr int kWarpKeys = Shape::kWarpRows, kKeys = Shape::kRows;
  static constexpr int kQueries = Shape::kOthers;
};

// A tile of query rows.
template <class T, class S>
struct alignas(16) QueryStage {
  T q[S::kQueries * S::kStride], d_out[S::kQueries * S::kStride];
  float factor[S::kQueries], lse[S::kQueries], shift[S::kQueries];
  int begin[S::kQueries], end[S::kQueries];
  // Not of the plain kernel:
  float post[S::kPlain ? 1 : S::kQueries];
  DropoutRow dropout[S::kPlain ? 1 : S::kQueries];

  __device__ void copy(const Problem<T>& p, const Backward<T>& g, int b, int h, int first,
                       int last) {
    copy_rows<S::kColumns, S::kQueries, S::kThreads>(q, row_at(p.q, b, h, 0), p.q.row, first, 0,
                                                     last, static_cast<int>(p.shape.qk_size),
                                                     p.whole);
    copy_rows<S::kColumns, S::kQueries, S::kThreads>(d_out, row_at(g.d_out, b, h, 0), g.d_out.row,
                                                     first, 0, last,
                                                     static_cast<int>(p.shape.v_size), g.whole);
    const int64_t dense = (b * p.shape.q_heads + h) * p.shape.q_rows;
    const int64_t sequence = b * p.shape.q_rows;
    const auto numbers = [&](auto* to, const auto* from) {
      copy_numbers<S::kQueries, S::kThreads>(to, from, 1, first, 0, last);
    };
    numbers(factor, g.rows.factor + dense);
    numbers(lse, g.rows.lse + dense);
    numbers(shift, g.rows.shift + dense);
    numbers(begin, g.rows.begin + sequence);
    numbers(end, g.rows.end + sequence);
    if constexpr (!S::kPlain)
      for (int r = static_cast<int>(threadIdx.x); r < S::kQueries; r += S::kThreads) {
        if (first + r >= last) continue;
        post[r] = p.post.data ? *row_at(p.post, b, h, first + r) : 1;
        if (p.threshold > 0)
          dropout[r] = dropout_row(p.seed, static_cast<uint64_t>(dense + first + r));
      }
    commit_copies();
  }
  __device__ GradientRow row(const Problem<T>& p, int b, int h, int first, int r) const {
    GradientRow row;
    row.factor = factor[r];
    row.lse = lse[r];
    row.shift = shift[r];
    row.keys = {begin[r], end[r]};
    if constexpr (!S::kPlain) {
      row.post = post[r];
      if (p.bias.data) row.bias = row_at(p.bias, b, h, first + r);
      row.dropout = dropout[r];
    }
    return row;
  }
};

template <class T, class S>
struct KeyTiles {
  T k[S::kKeys * S::kStride], v[S::kKeys * S::kStride];
  QueryStage<T, S> stage[S::kStages];

  __device__ void copy(const Problem<T>& p, int b, int kv_head, int first) {
    const auto rows = static_cast<int>(p.shape.kv_rows);
    copy_rows<S::kColumns, S::kKeys, S::kThreads>(k, row_at(p.k, b, kv_head, 0), p.k.row, first, 0,
                                                  rows, static_cast<int>(p.shape.qk_size), p.whole);
    copy_rows<S::kColumns, S::kKeys, S::kThreads>(v, row_at(p.v, b, kv_head, 0), p.v.row, first, 0,
                                                  rows, static_cast<int>(p.shape.v_size), p.whole);
    commit_copies();
  }
};

// The gradients of a warp's keys and values, as they are summed.
template <class S>
struct Sums {
  float k[S::kM][S::kColumns / 8][4] = {}, v[S::kM][S::kColumns / 8][4] = {};
};

// The query rows that may see keys [begin, end).
template <class T>
__device__ KeySpan query_span(const Problem<T>& p, const Backward<T>& g, int b, int begin,
                              int end) {
  int64_t first = 0, last = p.shape.q_rows;
  const int64_t offset = p.mask.query_offset;
  if (p.mask.causal) first = max(first, begin - offset);
  if (p.mask.window > 0) {
    first = max(first, begin - p.mask.window + 1 - offset);
    last = min(last, end - 1 + p.mask.window - offset);
  }
  first = min(max(first, int64_t{0}), p.shape.q_rows);
  const KeySpan span = {static_cast<int>(first), static_cast<int>(max(last, first))};
  if (!p.mask.key_begin && !p.mask.key_end) return span;
  // Those of other documents are left out at both ends.
  __shared__ int from, to;
  if (threadIdx.x == 0) {
    from = span.end;
    to = span.begin;
  }
  __syncthreads();
  int lowest = span.end, highest = span.begin;
  for (int i = span.begin + static_cast<int>(threadIdx.x); i < span.end;
       i += static_cast<int>(blockDim.x)) {
    const int64_t at = b * p.shape.q_rows + i;
    if (max(g.rows.begin[at], begin) >= min(g.rows.end[at], end)) continue;
    lowest = min(lowest, i);
    highest = i + 1;
  }
  atomicMin(&from, lowest);
  atomicMax(&to, highest);
  __syncthreads();
  return {min(from, to), to};
}

// What a lane's keys have beside their rows.
template <int kM>
struct KeyNumbers {
  int key[kM][2];
  float a_k[kM][2], a_v[kM][2];
  float d_a_k[kM][2] = {}, d_a_v[kM][2] = {};
};

template <class T, class S>
__device__ inline KeyNumbers<S::kM> load_numbers(const Problem<T>& p, int b, int kv_head,
                                                 int first) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  KeyNumbers<S::kM> keys;
#pragma unroll
  for (int m = 0; m < S::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first + m * kTileRows + half * 8 + lane / 4;
      keys.key[m][half] = key;
      keys.a_k[m][half] = keys.a_v[m][half] = 1;
      if (S::kPlain || key >= static_cast<int>(p.shape.kv_rows)) continue;
      if (p.a_k.data) keys.a_k[m][half] = *row_at(p.a_k, b, kv_head, key);
      if (p.a_v.data) keys.a_v[m][half] = *row_at(p.a_v, b, kv_head, key);
    }
  return keys;
}

// Products to gradients, c of the logits' factors <q, k> and d of the weights.
template <class T, class S, int kTiles>
__device__ inline void plain_elements(const QueryStage<T, S>& stage, float (&c)[S::kM][kTiles][4],
                                      float (&d)[S::kM][kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const float2 factor = *reinterpret_cast<const float2*>(stage.factor + column);
    const float2 lse = *reinterpret_cast<const float2*>(stage.lse + column);
    const float2 shift = *reinterpret_cast<const float2*>(stage.shift + column);
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float f = e % 2 == 0 ? factor.x : factor.y;
        const float p = power_of<T>(fmaf(c[m][n][e], f, e % 2 == 0 ? -lse.x : -lse.y));
        c[m][n][e] = p * (d[m][n][e] - (e % 2 == 0 ? shift.x : shift.y)) * f;
        d[m][n][e] = p;
      }
  }
}

template <class T, class S, int kTiles>
__device__ inline void all_elements(const Problem<T>& p, const QueryStage<T, S>& stage, int b,
                                    int h, int first, KeyNumbers<S::kM>& keys,
                                    float (&c)[S::kM][kTiles][4], float (&d)[S::kM][kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kCount = 4 * S::kM;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const GradientRow rows[2] = {stage.row(p, b, h, first, column),
                                 stage.row(p, b, h, first, column + 1)};
    Products products[kCount];
    Element elements[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int m = i / 4, e = i % 4, half = e / 2;
      products[i] = {keys.key[m][half], keys.a_k[m][half], keys.a_v[m][half], c[m][n][e],
                     d[m][n][e]};
    }
    elements_of<S::kPlain>(
        p, [&](int i) -> const GradientRow& { return rows[i % 2]; }, products, elements);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int m = i / 4, e = i % 4, half = e / 2;
      c[m][n][e] = elements[i].d_x * rows[e % 2].factor;
      d[m][n][e] = elements[i].weight;
      // Products of hidden keys may be anything.
      if (elements[i].d_x != 0)
        keys.d_a_k[m][half] = fmaf(c[m][n][e], products[i].dot, keys.d_a_k[m][half]);
      if (elements[i].weight != 0)
        keys.d_a_v[m][half] = fmaf(d[m][n][e], products[i].product, keys.d_a_v[m][half]);
    }
  }
}

// Whether any query of a tile sees a warp's keys, from `first` on, and for the plain kernel whether
// one hides any.
struct Sight {
  bool seen, hides;
};
template <class T, class S>
__device__ inline Sight sight_of(const QueryStage<T, S>& stage, int first) {
  Sight lanes = {false, false};
#pragma unroll
  for (int r = static_cast<int>(threadIdx.x) % kWarp; r < S::kQueries; r += kWarp) {
    const int from = stage.begin[r] - first;
    const int to = stage.end[r] - first;
    lanes.seen = lanes.seen || (to > from && to > 0 && from < S::kWarpKeys);
    lanes.hides = lanes.hides || from > 0 || to < S::kWarpKeys;
  }
  return {__any_sync(kAllLanes, lanes.seen) != 0,
          S::kPlain && __any_sync(kAllLanes, lanes.hides) != 0};
}

template <class T, class S>
__device__ inline void write_gradients(const Problem<T>& p, const Backward<T>& g,
                                       const KeyTiles<T, S>& tiles, int b, int kv_head,
                                       int first_key, const KeyNumbers<S::kM>& keys,
                                       Sums<S>& sums) {
  const bool k_pairs = paired(g.d_k), v_pairs = paired(g.d_v);
  const auto rows = static_cast<int>(p.shape.kv_rows);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < S::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum_k = sum_quad(keys.d_a_k[m][half]) / g.factor_unit;
      const float sum_v = sum_quad(keys.d_a_v[m][half]);
      const int key = keys.key[m][half];
      if (key >= rows) continue;
      const int64_t dense = (b * p.shape.kv_heads + kv_head) * p.shape.kv_rows + key;
      const int row = (key - first_key) * S::kStride;
      scale_half(sums.k[m], half, keys.a_k[m][half] / g.factor_unit);
      scale_half(sums.v[m], half, keys.a_v[m][half]);
      add_recipe(g.own_k, kv_head, dense, sum_k, tiles.k + row, half, sums.k[m]);
      add_recipe(g.own_v, kv_head, dense, sum_v, tiles.v + row, half, sums.v[m]);
      if (g.d_k.data)
        write_row(row_at(g.d_k, b, kv_head, key), p.shape.qk_size, k_pairs, half, sums.k[m]);
      if (g.d_v.data)
        write_row(row_at(g.d_v, b, kv_head, key), p.shape.v_size, v_pairs, half, sums.v[m]);
      if (lane % 4 != 0) continue;
      if (g.d_a_k) g.d_a_k[dense] = sum_k;
      if (g.d_a_v) g.d_a_v[dense] = sum_v;
    }
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    key_kernel(const __grid_constant__ Problem<T> p, const __grid_constant__ Backward<T> g) {
  constexpr int kColumns = S::kColumns;
  extern __shared__ __align__(128) unsigned char memory[];
  auto& tiles = *reinterpret_cast<KeyTiles<T, S>*>(memory);
  const int b = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y);
  const int first_key = static_cast<int>(blockIdx.x) * S::kKeys;
  const int depth = padded_depth(p.shape.qk_size), width = padded_depth(p.shape.v_size);
  tiles.copy(p, b, kv_head, first_key);

  const int warp_key = static_cast<int>(threadIdx.x) / kWarp * S::kWarpKeys;
  KeyNumbers<S::kM> keys = load_numbers<T, S>(p, b, kv_head, first_key + warp_key);
  const bool bare = !g.d_a_k && !g.d_a_v;  // no sums beside the gradients of rows
  const int end = min(static_cast<int>(p.shape.kv_rows), first_key + S::kKeys);
  const KeySpan span = query_span(p, g, b, first_key, end);
  const int tile_count = (span.end - span.begin + S::kQueries - 1) / S::kQueries;
  const int count = tile_count * p.group();
  const auto head_of = [&](int at) { return kv_head * p.group() + at / tile_count; };
  const auto first_of = [&](int at) { return span.begin + at % tile_count * S::kQueries; };
  const auto copy = [&](int at) {
    tiles.stage[at % S::kStages].copy(p, g, b, head_of(at), first_of(at), span.end);
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
    const QueryStage<T, S>& stage = tiles.stage[at % S::kStages];
    const Sight sight = sight_of(stage, first_key + warp_key);
    if (!sight.seen) continue;
    float c[S::kM][S::kQueries / 8][4], d[S::kM][S::kQueries / 8][4];
    product_rows<kColumns>(c, tiles.k + warp_key * S::kStride, stage.q, depth);
    product_rows<kColumns>(d, tiles.v + warp_key * S::kStride, stage.d_out, width);
    if (S::kPlain && bare && !sight.hides)
      plain_elements<T, S>(stage, c, d);
    else
      all_elements<T, S>(p, stage, b, head_of(at), first_of(at), keys, c, d);
    add_product(sums.v, d, stage.d_out, width);
    add_product(sums.k, c, stage.q, depth);
  }
  await_copies<0>();
  __syncthreads();  // the keys are read once more
  write_gradients(p, g, tiles, b, kv_head, first_key, keys, sums);
}

// Two tiles of keys a warp read queries half as often; longer rows have no registers for them.
template <class T, int kColumns, bool kPlain>
struct Shapes {
  template <int kStages>
  struct Chosen {
    static constexpr int kM = kPlain && kColumns <= 64 ? 2 : 1;
    static constexpr int kWarps = kColumns > 128 ? 2 : 4;
    using Type = KeyShape<BackwardShape<T, kColumns, kWarps, kM, 32, kStages, kPlain>>;
    static constexpr size_t kBytes = sizeof(KeyTiles<T, Type>);
  };
  using Staged = StagedShapes<T, Chosen>;
};

}  // namespace

template <class T>
int64_t key_gradient_shared_bytes(const Shape& shape) {
  return most_bytes<T>(shape, [&]<int kColumns, bool kPlain>() {
    return Shapes<T, kColumns, kPlain>::Staged::kLeastBytes;
  });
}

template <class T>
void launch_key_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream) {
  if (p.shape.batch * p.shape.kv_rows == 0) return;
  with_kernel<T>(p.shape, is_plain(p), [&]<int kColumns, bool kPlain>() {
    Shapes<T, kColumns, kPlain>::Staged::launch([&]<class Chosen>(Chosen) {
      using S = typename Chosen::Type;
      const auto kernel = key_kernel<T, S>;
      if (!allow_shared_bytes(kernel, Chosen::kBytes)) return false;
      const dim3 grid(static_cast<unsigned>(ceil_div(p.shape.kv_rows, S::kKeys)),
                      static_cast<unsigned>(p.shape.kv_heads),
                      static_cast<unsigned>(p.shape.batch));
      kernel<<<grid, S::kThreads, Chosen::kBytes, stream>>>(p, g);
      return true;
    });
  });
  check_launch("attention_backward, keys");
}

template int64_t key_gradient_shared_bytes<float>(const Shape&);
template int64_t key_gradient_shared_bytes<BFloat16>(const Shape&);
template void launch_key_gradients(const Problem<float>&, const Backward<float>&, Stream);
template void launch_key_gradients(const Problem<BFloat16>&, const Backward<BFloat16>&, Stream);

}  // namespace tempera::kernels::cuda
