#pragma once

#include "tempera/kernels/cuda/attention_logits.cuh"
#include "tempera/kernels/cuda/attention_tile.cuh"

// The stages of the forward pass: what a block has, the softmax of a row's share of a tile of keys,
// and what becomes of it.
namespace tempera::kernels::cuda {

// What is known of a row behind some of its keys; numbers are relative to the maximum.
struct RowState {
  float max = -INFINITY;
  float sum = 0;
  float below = 0;  // sum of exp(l - max) * (max - l), for the entropy
};

// A tile of keys as a warp's rows see it.
struct TileView {
  int first;
  bool hides;    // some row does not see some key of it
  bool signs;    // plain: some row's factor is not above 0
  bool entropy;  // is wanted
  const float *a_k, *a_v;
};

// x = change(column, x) for the numbers x that a lane has of half `half` of 16 rows.
template <int kTiles, class Change>
__device__ inline void change_row(float (&c)[kTiles][4], int half, Change change) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& x = c[n][half * 2 + e];
      x = change(n * 8 + lane % 4 * 2 + e, x);
    }
}

// c: products to logits, in units of powers, of half `half` of a tile's rows. Returns what they
// still have to be multiplied by, above 0.
template <bool kPlain, class T, int kTiles>
__device__ inline float finish_logits(const Problem<T>& p, const QueryRow& row,
                                      const TileView& tile, float factor, int half,
                                      float (&c)[kTiles][4]) {
  const KeySpan span = row.keys.from(tile.first);
  const auto each = [&](auto change) { change_row(c, half, change); };
  if constexpr (kPlain) {
    if (tile.signs) {
      each([&](int, float x) { return x * factor; });
      factor = 1;
    }
    if (tile.hides) each([&](int column, float x) { return span.holds(column) ? x : -INFINITY; });
    return factor;
  } else {
    if (p.a_k.data)
      each([&](int column, float x) { return x * (factor * tile.a_k[column]); });
    else
      each([&](int, float x) { return x * factor; });
    apply_features(p, [&](auto feature) {
      each([&](int column, float x) {
        Logit logit{x};
        feature(row, tile.first + column, logit);
        return logit.x;
      });
    });
    const Post post{row.post * kUnit<T>};
    if (tile.hides)
      each([&](int column, float x) { return span.holds(column) ? post(x) : -INFINITY; });
    else
      each([&](int, float x) { return post(x); });
    return 1;
  }
}

// One row's share of a tile: products in, weights of the values out. factor: the row's own, of
// plain rows in units of powers. Returns what the row's sums shrink by.
template <bool kPlain, class T, int kTiles>
__device__ inline float update_row(const Problem<T>& p, const QueryRow& row, RowState& s,
                                   const TileView& tile, float factor, int half,
                                   float (&c)[kTiles][4]) {
  factor = finish_logits<kPlain>(p, row, tile, factor, half, c);
  float top = -INFINITY;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) top = fmaxf(top, fmaxf(c[n][half * 2], c[n][half * 2 + 1]));
  const float max = fmaxf(s.max, max_quad(top) * factor);
  const float shift = max == -INFINITY ? 0 : max;
  const float shrink = power_of<T>(s.max - shift);
  if (!kPlain && tile.entropy && s.max > -INFINITY)
    s.below = shrink * (s.below + (max - s.max) * s.sum);
  s.max = max;
  float sum = 0;
  const auto each = [&](auto change) { change_row(c, half, change); };
  if (!kPlain && tile.entropy)
    each([&](int, float x) {
      const float above = fmaf(x, factor, -shift), weight = power_of<T>(above);
      sum += weight;
      s.below = weight > 0 ? fmaf(weight, -above, s.below) : s.below;
      return weight;
    });
  else
    each([&](int, float x) {
      const float weight = power_of<T>(fmaf(x, factor, -shift));
      sum += weight;
      return weight;
    });
  s.sum = fmaf(s.sum, shrink, sum);
  if constexpr (!kPlain) {
    if (const Dropout<T> dropout{p}; dropout.on())
      each([&](int column, float x) { return x * dropout(row, tile.first + column); });
    if (p.a_v.data)  // that of a hidden key may be anything
      each([&](int column, float x) { return x == 0 ? 0 : x * tile.a_v[column]; });
  }
  return shrink;
}

// Of a split: (rows, v_size) and (rows, 3), rows being (batch, q_heads, q_rows).
struct Splits {
  int count = 1;
  float* out = nullptr;
  float* state = nullptr;
};

template <class T>
__device__ void write_statistics(const Problem<T>& p, const AttentionOutputs<T>& o, int b, int h,
                                 int i, const RowState& s) {
  const float log_sum = s.sum > 0 ? logf(s.sum) : 0;
  if (o.lse.data) *row_at(o.lse, b, h, i) = s.sum > 0 ? s.max + log_sum : -INFINITY;
  if (o.max.data) *row_at(o.max, b, h, i) = s.max;
  if (o.entropy.data) *row_at(o.entropy, b, h, i) = s.sum > 0 ? log_sum + s.below / s.sum : 0;
  if (o.head_max && s.max > -INFINITY) raise_to(o.head_max + h, s.max);
}

// What a row's sum of values is multiplied by: the share beside the sink over the sum.
template <class T>
__device__ inline float row_factor(const Problem<T>& p, int h, const RowState& s) {
  if (!(s.sum > 0)) return 0;
  if (!p.sinks) return 1 / s.sum;
  return 1 / (s.sum + expf(p.sinks[h] - s.max));
}

// How the work is cut: a block has 16 kM kWarps rows, and keys come in tiles of kKeys.
template <class T, int kColumns_, int kWarps_, int kM_, int kKeys_, bool kPlain_>
struct ForwardShape {
  static constexpr int kColumns = kColumns_, kWarps = kWarps_, kM = kM_, kKeys = kKeys_;
  static constexpr bool kPlain = kPlain_;
  static constexpr int kThreads = kWarps * kWarp;
  // Of a multiprocessor, where registers allow it.
  static constexpr int kBlocks = kColumns == 64 && kWarps == 8 ? 2 : 1;
  static constexpr int kStride = tile_stride<T>(kColumns);
  static constexpr int kWarpRows = kTileRows * kM, kRows = kWarpRows * kWarps;
  static constexpr size_t kBytes = sizeof(QueryRow) * kRows +
                                   sizeof(T) * kStride * (kRows + 2 * kKeys) +
                                   sizeof(float) * 2 * kKeys;
  // A decode's warp has nobody else's work to hide its copies behind: it asks for values early.
  static constexpr bool kDecode = kWarps == 1;
};

template <class T, class S>
struct ForwardTiles {
  QueryRow* rows;
  T *q, *k, *v;
  float *a_k, *a_v;
  __device__ explicit ForwardTiles(unsigned char* memory)
      : rows(reinterpret_cast<QueryRow*>(memory)),
        q(reinterpret_cast<T*>(rows + S::kRows)),
        k(q + S::kRows * S::kStride),
        v(k + S::kKeys * S::kStride),
        a_k(reinterpret_cast<float*>(v + S::kKeys * S::kStride)),
        a_v(a_k + S::kKeys) {}
};

template <class T>
__device__ inline QueryRow query_row(const Problem<T>& p, int b, int h, int i) {
  QueryRow row;
  row.keys = visible_span(p, b, i);
  row.factor = p.scale * (p.a_q.data ? *row_at(p.a_q, b, h, i) : 1);
  load_features(p, b, h, i, (b * p.shape.q_heads + h) * p.shape.q_rows + i, row);
  return row;
}

// Which rows a block has: those from first_row on of the `all` that read the keys of kv_head.
template <class T, class S>
struct ForwardBlock {
  const Problem<T>& p;
  int q_rows, qk_size, v_size;
  int b, kv_head, first_head, first_row, all, split;

  __device__ ForwardBlock(const Problem<T>& problem, const Splits& splits)
      : p(problem),
        q_rows(static_cast<int>(p.shape.q_rows)),
        qk_size(static_cast<int>(p.shape.qk_size)),
        v_size(static_cast<int>(p.shape.v_size)),
        b(static_cast<int>(blockIdx.z)),
        kv_head(static_cast<int>(blockIdx.y)),
        first_head(kv_head * p.group()),
        all(p.group() * q_rows) {
    // The last rows of a causal call see the most keys: they come first.
    const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    split = block % splits.count;
    first_row = block / splits.count * S::kRows;
  }

  __device__ void copy_queries(T* to) const {
    copy_tile<S::kColumns, S::kRows, S::kThreads>(
        to, first_row, 0, all, qk_size, p.whole,
        [&](int m) { return row_at(p.q, b, first_head + m / q_rows, m % q_rows); });
  }
  // A tile of keys or values, of which the rows of the block see those of the span.
  __device__ void copy_keys(const Rows<const T>& from, T* to, int size, int tile,
                            KeySpan span) const {
    const int first = tile * S::kKeys;
    if (S::kDecode && p.block_table)
      copy_tile<S::kColumns, S::kKeys, S::kThreads>(
          to, first, span.begin, span.end, size, p.whole,
          [&](int j) { return p.key_row(from, b, kv_head, j); });
    else
      copy_rows<S::kColumns, S::kKeys, S::kThreads>(to, row_at(from, b, kv_head, 0), from.row,
                                                    first, span.begin, span.end, size, p.whole);
    commit_copies();
  }
};

// Fills in the rows; returns the keys that any of them sees.
template <class T, class S>
__device__ KeySpan load_rows(const ForwardBlock<T, S>& block, QueryRow* rows) {
  __shared__ int begin, end;
  if (threadIdx.x == 0) {
    begin = INT32_MAX;
    end = 0;
  }
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.x); r < S::kRows; r += S::kThreads) {
    const int m = block.first_row + r;
    QueryRow row;
    if (m < block.all)
      row = query_row(block.p, block.b, block.first_head + m / block.q_rows, m % block.q_rows);
    rows[r] = row;
    if (row.keys.begin >= row.keys.end) continue;
    atomicMin(&begin, row.keys.begin);
    atomicMax(&end, row.keys.end);
  }
  __syncthreads();
  return {min(begin, end), end};
}

template <class T, class S>
__device__ void load_key_scales(const ForwardBlock<T, S>& block, int first, KeySpan span,
                                float* a_k, float* a_v) {
  const auto load = [&](const Rows<const float>& from, float* to) {
    if (!from.data) return;
    for (int r = static_cast<int>(threadIdx.x); r < S::kKeys; r += S::kThreads) {
      const int j = first + r;
      if (!span.holds(j))
        to[r] = 1;
      else
        to[r] = S::kDecode ? *block.p.key_row(from, block.b, block.kv_head, j)
                           : *row_at(from, block.b, block.kv_head, j);
    }
  };
  load(block.p.a_k, a_k);
  load(block.p.a_v, a_v);
}

// The tiles of keys that a split of a block goes over.
struct TileRange {
  int begin, end;
};
template <class S>
__device__ inline TileRange tiles_of(KeySpan span, int split, int splits) {
  const int begin = span.begin / S::kKeys;
  const int count = span.end > span.begin ? (span.end + S::kKeys - 1) / S::kKeys - begin : 0;
  return {begin + count * split / splits, begin + count * (split + 1) / splits};
}

// A warp's rows, and what a lane has of them.
template <class T, class S>
struct ForwardRows {
  int warp_row;
  WarpSpan keys;
  bool signs;  // some row's factor is not above 0
  RowState state[S::kM][2];
  float factor[S::kM][2];
  float out[S::kM][S::kColumns / 8][4];

  __device__ ForwardRows(const ForwardBlock<T, S>& block, const QueryRow* rows)
      : warp_row(static_cast<int>(threadIdx.x) / kWarp * S::kWarpRows), out{} {
    const int lane_row = warp_row + static_cast<int>(threadIdx.x) % kWarp % S::kWarpRows;
    keys = warp_span(rows[lane_row].keys, block.first_row + lane_row < block.all);
    bool positive = true;
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row(m, half);
        factor[m][half] = rows[r].factor * (S::kPlain ? kUnit<T> : 1);
        positive = positive && (factor[m][half] > 0 || block.first_row + r >= block.all);
      }
    signs = !__all_sync(kAllLanes, positive);
  }

  // Of the block.
  __device__ int row(int m, int half) const {
    return warp_row + m * kTileRows + half * 8 + static_cast<int>(threadIdx.x) % kWarp / 4;
  }

  // Products of a tile to weights of its values; what was summed before shrinks.
  __device__ void update(const ForwardBlock<T, S>& block, const QueryRow* rows,
                         const TileView& view, float (&c)[S::kM][S::kKeys / 8][4]) {
    float shrink[S::kM][2];
    bool same = true;
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        shrink[m][half] = 1;
        if (S::kDecode && block.first_row + half * 8 >= block.all) {  // a few rows
#pragma unroll
          for (int n = 0; n < S::kKeys / 8; ++n) c[m][n][half * 2] = c[m][n][half * 2 + 1] = 0;
          continue;
        }
        shrink[m][half] = update_row<S::kPlain>(block.p, rows[row(m, half)], state[m][half], view,
                                                factor[m][half], half, c[m]);
        same = same && shrink[m][half] == 1;
      }
    if (__all_sync(kAllLanes, same)) return;
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int n = 0; n < S::kColumns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[m][n][e] *= shrink[m][e / 2];
  }

  __device__ void write(const ForwardBlock<T, S>& block, const AttentionOutputs<T>& o,
                        const Splits& splits) {
    const int q_rows = block.q_rows, v_size = block.v_size;
    const bool first_lane = threadIdx.x % 4 == 0;
    const bool pairs = paired(o.out);
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        RowState s = state[m][half];
        s.sum = sum_quad(s.sum);
        s.below = sum_quad(s.below) / kUnit<T>;
        s.max /= kUnit<T>;
        const int at = block.first_row + row(m, half);
        if (at >= block.all) continue;
        const int h = block.first_head + at / q_rows, i = at % q_rows;
        if (splits.count == 1) {
          scale_half(out[m], half, row_factor(block.p, h, s));
          write_row(row_at(o.out, block.b, h, i), v_size, pairs, half, out[m]);
          if (first_lane) write_statistics(block.p, o, block.b, h, i, s);
          continue;
        }
        const int64_t all_rows = (block.b * block.p.shape.q_heads + h) * block.p.shape.q_rows + i;
        const int64_t dense = all_rows * splits.count + block.split;
        write_row(splits.out + dense * v_size, v_size, true, half, out[m]);
        if (!first_lane) continue;
        splits.state[dense * 3] = s.max;
        splits.state[dense * 3 + 1] = s.sum;
        splits.state[dense * 3 + 2] = s.below;
      }
  }
};

}  // namespace tempera::kernels::cuda
