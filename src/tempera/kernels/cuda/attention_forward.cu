#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/attention.h"
#include "tempera/kernels/cuda/attention_forward.cuh"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/reduce.cuh"
#include "tempera/kernels/validate.h"

// A block takes some query rows, which are those of all heads that read the same keys, one head
// after the other; keys come by in tiles. Decoding splits the keys over blocks and merges their
// results.
namespace tempera::kernels::cuda {
namespace {

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

// Fills in the rows; returns the keys that any of them sees.
template <class T, class S>
__device__ KeySpan load_rows(const Problem<T>& p, QueryRow* rows, int b, int first_head,
                             int first_row, int all) {
  __shared__ int begin, end;
  if (threadIdx.x == 0) {
    begin = INT32_MAX;
    end = 0;
  }
  __syncthreads();
  const auto q_rows = static_cast<int>(p.shape.q_rows);
  for (int r = static_cast<int>(threadIdx.x); r < S::kRows; r += S::kThreads) {
    const int m = first_row + r;
    QueryRow row;
    if (m < all) row = query_row(p, b, first_head + m / q_rows, m % q_rows);
    rows[r] = row;
    if (row.begin >= row.end) continue;
    atomicMin(&begin, row.begin);
    atomicMax(&end, row.end);
  }
  __syncthreads();
  return {min(begin, end), end};
}

template <class T, class S>
__device__ void load_key_scales(const Problem<T>& p, int b, int h, int first, KeySpan span,
                                float* a_k, float* a_v) {
  const auto load = [&](const Rows<const float>& from, float* to) {
    if (!from.data) return;
    for (int r = static_cast<int>(threadIdx.x); r < S::kKeys; r += S::kThreads) {
      const int j = first + r;
      if (j < span.begin || j >= span.end)
        to[r] = 1;
      else
        to[r] = S::kDecode ? *p.key_row(from, b, h, j) : *row_at(from, b, h, j);
    }
  };
  load(p.a_k, a_k);
  load(p.a_v, a_v);
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    forward_kernel(const __grid_constant__ Problem<T> p,
                   const __grid_constant__ AttentionOutputs<T> o, Splits splits) {
  constexpr int kColumns = S::kColumns, kKeys = S::kKeys, kM = S::kM;
  extern __shared__ __align__(128) unsigned char memory[];
  const ForwardTiles<T, S> tiles(memory);
  const auto q_rows = static_cast<int>(p.shape.q_rows);
  const auto qk_size = static_cast<int>(p.shape.qk_size), v_size = static_cast<int>(p.shape.v_size);
  const int b = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y);
  // The last rows of a causal call see the most keys: they come first.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int split = block % splits.count, first_row = block / splits.count * S::kRows;
  const int all = p.group() * q_rows, first_head = kv_head * p.group();

  copy_tile<kColumns, S::kRows, S::kThreads>(
      tiles.q, first_row, 0, all, qk_size, p.whole,
      [&](int m) { return row_at(p.q, b, first_head + m / q_rows, m % q_rows); });
  const KeySpan span = load_rows<T, S>(p, tiles.rows, b, first_head, first_row, all);
  const int begin_tile = span.begin / kKeys;
  const int tile_count = span.end > span.begin ? (span.end + kKeys - 1) / kKeys - begin_tile : 0;
  const int tile_begin = begin_tile + tile_count * split / splits.count;
  const int tile_end = begin_tile + tile_count * (split + 1) / splits.count;
  const auto copy_keys = [&](const Rows<const T>& from, T* to, int size, int tile) {
    const int first = tile * kKeys;
    if (S::kDecode && p.block_table)
      copy_tile<kColumns, kKeys, S::kThreads>(
          to, first, span.begin, span.end, size, p.whole,
          [&](int j) { return p.key_row(from, b, kv_head, j); });
    else
      copy_rows<kColumns, kKeys, S::kThreads>(to, row_at(from, b, kv_head, 0), from.row, first,
                                              span.begin, span.end, size, p.whole);
    commit_copies();
  };
  if (tile_begin < tile_end) copy_keys(p.k, tiles.k, qk_size, tile_begin);

  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp * S::kWarpRows;
  const QueryRow& lane_row = tiles.rows[warp_row + lane % S::kWarpRows];
  const WarpSpan keys =
      warp_span({lane_row.begin, lane_row.end}, first_row + warp_row + lane % S::kWarpRows < all);
  const auto row_of = [&](int m, int half) {
    return warp_row + m * kTileRows + half * 8 + lane / 4;
  };
  RowState state[kM][2];
  float factor[kM][2];
  bool positive = true;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row_of(m, half);
      state[m][half] = RowState();
      factor[m][half] = tiles.rows[r].factor * (S::kPlain ? kUnit<T> : 1);
      positive = positive && (factor[m][half] > 0 || first_row + r >= all);
    }
  const bool signs = !__all_sync(kAllLanes, positive);
  float out[kM][kColumns / 8][4] = {};
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int first = tile * kKeys;
    const bool seen = keys.touches(first, kKeys);
    if (!S::kDecode) await_copies<0>();
    __syncthreads();  // the values before are read
    if (!S::kPlain) load_key_scales<T, S>(p, b, kv_head, first, span, tiles.a_k, tiles.a_v);
    copy_keys(p.v, tiles.v, v_size, tile);
    if (S::kDecode) {
      await_copies<1>();
      __syncthreads();
    }
    float c[kM][kKeys / 8][4];
    if (seen)
      product_rows<kColumns>(c, tiles.q + warp_row * S::kStride, tiles.k, padded_depth(qk_size));
    if (!S::kDecode) await_copies<0>();
    __syncthreads();  // the keys are read
    if (tile + 1 < tile_end)
      copy_keys(p.k, tiles.k, qk_size, tile + 1);
    else
      commit_copies();  // of nothing, so that waiting counts alike
    if (seen) {
      const TileView view{
          first, !keys.holds(first, kKeys), signs, o.entropy.data != nullptr, tiles.a_k, tiles.a_v};
      float shrink[kM][2];
      bool same = true;
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          shrink[m][half] = 1;
          if (S::kDecode && first_row + half * 8 >= all) {  // a few rows
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) c[m][n][half * 2] = c[m][n][half * 2 + 1] = 0;
            continue;
          }
          shrink[m][half] = update_row<S::kPlain>(p, tiles.rows[row_of(m, half)], state[m][half],
                                                  view, factor[m][half], half, c[m]);
          same = same && shrink[m][half] == 1;
        }
      if (!__all_sync(kAllLanes, same))
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) out[m][n][e] *= shrink[m][e / 2];
    }
    if (S::kDecode) {
      await_copies<1>();
      __syncthreads();
    }
    if (seen) add_product(out, c, tiles.v, padded_depth(v_size));
  }
  await_copies<0>();

  const bool pairs = paired(o.out);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      RowState s = state[m][half];
      s.sum = sum_quad(s.sum);
      s.below = sum_quad(s.below) / kUnit<T>;
      s.max /= kUnit<T>;
      const int row = first_row + row_of(m, half);
      if (row >= all) continue;
      const int h = first_head + row / q_rows, i = row % q_rows;
      if (splits.count == 1) {
        scale_half(out[m], half, row_factor(p, h, s));
        write_row(row_at(o.out, b, h, i), v_size, pairs, half, out[m]);
        if (lane % 4 == 0) write_statistics(p, o, b, h, i, s);
        continue;
      }
      const int64_t dense = ((b * p.shape.q_heads + h) * p.shape.q_rows + i) * splits.count + split;
      write_row(splits.out + dense * v_size, v_size, true, half, out[m]);
      if (lane % 4 != 0) continue;
      splits.state[dense * 3] = s.max;
      splits.state[dense * 3 + 1] = s.sum;
      splits.state[dense * 3 + 2] = s.below;
    }
}

constexpr int kMergeThreads = 128;
constexpr int kMostSplits = 1056;

// A block merges the splits of one row.
template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(const __grid_constant__ Problem<T> p,
                 const __grid_constant__ AttentionOutputs<T> o, Splits splits) {
  const int i = static_cast<int>(blockIdx.x), h = static_cast<int>(blockIdx.y),
            b = static_cast<int>(blockIdx.z);
  const int64_t dense = ((b * p.shape.q_heads + h) * p.shape.q_rows + i) * splits.count;
  __shared__ float share[kMostSplits];
  RowState all;
  for (int s = static_cast<int>(threadIdx.x); s < splits.count; s += kMergeThreads)
    all.max = fmaxf(all.max, splits.state[(dense + s) * 3]);
  all.max = max_block(all.max);
  for (int s = static_cast<int>(threadIdx.x); s < splits.count; s += kMergeThreads) {
    const float* const state = splits.state + (dense + s) * 3;
    share[s] = state[0] == -INFINITY ? 0 : expf(state[0] - all.max);
    if (share[s] == 0) continue;
    all.sum = fmaf(share[s], state[1], all.sum);
    all.below += share[s] * (state[2] + (all.max - state[0]) * state[1]);
  }
  all.sum = sum_block(all.sum);
  all.below = sum_block(all.below);  // its barriers also show the shares to all threads
  const float factor = row_factor(p, h, all);
  for (int64_t column = threadIdx.x; column < p.shape.v_size; column += kMergeThreads) {
    const float* const out = splits.out + dense * p.shape.v_size + column;
    float sum = 0;
#pragma unroll 8
    for (int s = 0; s < splits.count; ++s) sum = fmaf(share[s], out[s * p.shape.v_size], sum);
    row_at(o.out, b, h, i)[column] = from_float<T>(sum * factor);
  }
  if (threadIdx.x == 0) write_statistics(p, o, b, h, i, all);
}

__global__ void fill_kernel(float* numbers, int count, float value) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < count) numbers[at] = value;
}

// Two tiles of rows a warp read keys and values half as often; only the plain kernels have the
// registers for them.
template <class T, int kWarps, int kColumns, bool kPlain>
struct ChosenShape {
  static constexpr int kKeys = kColumns > 128 || kWarps == 1 ? 32 : 64;
  static constexpr bool kHalves = sizeof(T) == 2 && kColumns <= 128 && kWarps > 1;
  using Type = ForwardShape<T, kColumns, kHalves && !kPlain ? 8 : kWarps, kHalves && kPlain ? 2 : 1,
                            kKeys, kPlain && kWarps != 1>;
};

constexpr int kForwardWarps = 4;
constexpr int kDecodeWarps = 1;

template <class T, int kWarps>
int64_t shared_bytes(const Shape& shape) {
  return most_bytes<T>(shape, [&]<int kColumns, bool kPlain>() {
    return ChosenShape<T, kWarps, kColumns, kPlain>::Type::kBytes;
  });
}

template <int kWarps, class T>
void launch(const Problem<T>& p, const AttentionOutputs<T>& o, const Splits& splits,
            Stream stream) {
  const Shape& s = p.shape;
  if (o.head_max)
    fill_kernel<<<static_cast<unsigned>(ceil_div(s.q_heads, 128)), 128, 0, stream>>>(
        o.head_max, static_cast<int>(s.q_heads), -INFINITY);
  if (s.batch * s.q_rows == 0) return check_launch("attention_forward");
  const bool plain = is_plain(p) && !o.entropy && kWarps > 1;
  with_kernel<T>(s, plain, [&]<int kColumns, bool kPlain>() {
    using S = typename ChosenShape<T, kWarps, kColumns, kPlain>::Type;
    const auto kernel = forward_kernel<T, S>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(S::kBytes));
    const int64_t rows = s.q_heads / s.kv_heads * s.q_rows;
    const dim3 grid(static_cast<unsigned>(ceil_div(rows, S::kRows) * splits.count),
                    static_cast<unsigned>(s.kv_heads), static_cast<unsigned>(s.batch));
    kernel<<<grid, S::kThreads, S::kBytes, stream>>>(p, o, splits);
  });
  if (splits.count > 1)
    merge_kernel<<<dim3(static_cast<unsigned>(s.q_rows), static_cast<unsigned>(s.q_heads),
                        static_cast<unsigned>(s.batch)),
                   kMergeThreads, 0, stream>>>(p, o, splits);
  check_launch("attention_forward");
}

// The checks of all backends, without those that would read the device's memory.
template <class T>
void check_call(AttentionParams<T> params, const AttentionOutputs<T>& outputs) {
  params.mask.key_begin = params.mask.key_end = nullptr;
  validate(params, outputs);
}

// Blocks that keep a large device busy; splits have 256 keys at least. Fixed, so that the bits do
// not depend on the device.
constexpr int64_t kBlocksWanted = kMostSplits;
constexpr int64_t kKeysOfSplit = 256;

template <class T>
Splits make_splits(const Shape& s, Pieces& pieces) {
  Splits splits;
  const int64_t tiles = ceil_div(s.q_heads / s.kv_heads * s.q_rows, kTileRows);
  const int64_t blocks = std::max<int64_t>(1, tiles * s.kv_heads * s.batch);
  splits.count = static_cast<int>(std::clamp<int64_t>(
      kBlocksWanted / blocks, 1, std::max<int64_t>(1, s.kv_rows / kKeysOfSplit)));
  if (splits.count == 1) return splits;
  const int64_t rows = s.batch * s.q_heads * s.q_rows * splits.count;
  splits.out = pieces.floats(rows * s.v_size);
  splits.state = pieces.floats(rows * 3);
  return splits;
}

}  // namespace

template <class T>
int64_t forward_shared_bytes(const Shape& shape) {
  return shared_bytes<T, kForwardWarps>(shape);
}

template <class T>
int64_t decode_shared_bytes(const Shape& shape) {
  return shared_bytes<T, kDecodeWarps>(shape);
}

template <class T>
size_t attention_forward_workspace(const AttentionParams<T>& params) {
  Pieces pieces(nullptr);
  const CallScales<T> scales(params, pieces);
  return pieces.used();
}

template <class T>
void attention_forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
                       void* workspace, Stream stream) {
  check_call(params, outputs);
  Pieces pieces(workspace);
  const CallScales<T> scales(params, pieces);
  scales.finish(params, stream);
  launch<kForwardWarps>(make_problem(params, scales), outputs, {}, stream);
}

template <class T>
size_t decode_workspace(const DecodeParams<T>& params) {
  Pieces pieces(nullptr);
  const CallScales<T> scales(params.attention, pieces);
  make_splits<T>(params.attention.shape, pieces);
  return pieces.used();
}

template <class T>
void decode(const DecodeParams<T>& params, const AttentionOutputs<T>& outputs, void* workspace,
            Stream stream) {
  const AttentionParams<T>& attention = params.attention;
  check_call(attention, outputs);
  TEMPERA_CHECK(
      !attention.k_scale.recipe.active() && !attention.v_scale.recipe.active(),
      "decode takes finished scales of the cached keys and values, and a recipe is given");
  TEMPERA_CHECK(params.lengths || attention.shape.batch == 0, "lengths are required, and absent");
  TEMPERA_CHECK(!params.block_table || params.block_size >= 1, "block size: ", params.block_size,
                " given, at least 1 expected with a block table");
  Pieces pieces(workspace);
  const CallScales<T> scales(attention, pieces);
  scales.finish(attention, stream);
  Problem<T> problem = make_problem(attention, scales);
  problem.lengths = params.lengths;
  problem.block_table = params.block_table;
  problem.table_stride = params.table_stride;
  problem.block_size = params.block_size;
  launch<kDecodeWarps>(problem, outputs, make_splits<T>(attention.shape, pieces), stream);
}

#define TEMPERA_INSTANTIATE(T)                                                                  \
  template int64_t forward_shared_bytes<T>(const Shape&);                                       \
  template int64_t decode_shared_bytes<T>(const Shape&);                                        \
  template size_t attention_forward_workspace(const AttentionParams<T>&);                       \
  template void attention_forward(const AttentionParams<T>&, const AttentionOutputs<T>&, void*, \
                                  Stream);                                                      \
  template size_t decode_workspace(const DecodeParams<T>&);                                     \
  template void decode(const DecodeParams<T>&, const AttentionOutputs<T>&, void*, Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
