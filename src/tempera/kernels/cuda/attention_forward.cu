#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/attention.h"
#include "tempera/kernels/cuda/attention_problem.cuh"
#include "tempera/kernels/cuda/attention_tile.cuh"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/reduce.cuh"
#include "tempera/kernels/validate.h"

// A block takes 16 kWarps query rows, which are those of all heads that read the same keys, one
// head after the other; keys come by in tiles. Decoding splits the keys over blocks and merges
// their results.
namespace tempera::kernels::cuda {
namespace {

// What is known of a row behind some of its keys; numbers are relative to the maximum.
struct RowState {
  float max = -INFINITY;
  float sum = 0;
  float below = 0;  // sum of exp(l - max) * (max - l), for the entropy
};

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

template <class T, int kColumns, int kWarps, int kKeys>
struct ForwardTiles {
  static constexpr int kStride = tile_stride<T>(kColumns);
  static constexpr int kRows = kTileRows * kWarps;
  static constexpr size_t kBytes =
      sizeof(T) * kStride * (kRows + 2 * kKeys) + sizeof(float) * 2 * kKeys;

  T *q, *k, *v;
  float *a_k, *a_v;
  __device__ explicit ForwardTiles(unsigned char* memory)
      : q(reinterpret_cast<T*>(memory)),
        k(q + kRows * kStride),
        v(k + kKeys * kStride),
        a_k(reinterpret_cast<float*>(v + kKeys * kStride)),
        a_v(a_k + kKeys) {}
};

// The keys that any of the block's rows sees.
template <class T>
__device__ KeySpan block_span(const Problem<T>& p, int b, int first, int rows, int all) {
  __shared__ int begin, end;
  __syncthreads();  // those of an earlier call may still be read
  if (threadIdx.x == 0) {
    begin = INT32_MAX;
    end = 0;
  }
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.x); r < rows && first + r < all;
       r += static_cast<int>(blockDim.x)) {
    const KeySpan span = visible_span(p, b, (first + r) % static_cast<int>(p.shape.q_rows));
    if (span.begin >= span.end) continue;
    atomicMin(&begin, span.begin);
    atomicMax(&end, span.end);
  }
  __syncthreads();
  return {min(begin, end), end};
}

template <class T, int kKeys>
__device__ void load_key_scales(const Problem<T>& p, int b, int h, int first, KeySpan span,
                                float* a_k, float* a_v) {
  for (int r = static_cast<int>(threadIdx.x); r < kKeys; r += static_cast<int>(blockDim.x)) {
    const int j = first + r;
    const bool inside = j >= span.begin && j < span.end;
    a_k[r] = inside && p.a_k.data ? *p.key_row(p.a_k, b, h, j) : 1;
    a_v[r] = inside && p.a_v.data ? *p.key_row(p.a_v, b, h, j) : 1;
  }
}

// One row's share of a tile: logits in, weights of the values out.
template <class T, int kTiles>
__device__ float update_row(const Problem<T>& p, const QueryRow& row, RowState& s, int first,
                            const float* a_k, const float* a_v, int half, bool entropy,
                            float (&c)[kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float top = -INFINITY;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e;
      float& x = c[n][half * 2 + e];
      x = logit_of(p, row, first + column, a_k[column], x).value;
      top = fmaxf(top, x);
    }
  const float max = fmaxf(s.max, max_quad(top));
  const float shrink = s.max == -INFINITY ? 0 : exp_of<T>(s.max - max);
  if (entropy && s.max > -INFINITY) s.below = shrink * (s.below + (max - s.max) * s.sum);
  s.sum *= shrink;
  s.max = max;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e;
      float& x = c[n][half * 2 + e];
      const float distance = max - x;
      const float weight = x == -INFINITY ? 0 : exp_of<T>(-distance);
      s.sum += weight;
      if (entropy && weight > 0) s.below = fmaf(weight, distance, s.below);
      x = weight > 0 ? weight * kept(p, row, first + column) * a_v[column] : 0;
    }
  return shrink;
}

template <class T, int kColumns, int kWarps, int kKeys>
__global__ void __launch_bounds__(kWarps* kWarp)
    forward_kernel(const __grid_constant__ Problem<T> p,
                   const __grid_constant__ AttentionOutputs<T> o, Splits splits) {
  using Tiles = ForwardTiles<T, kColumns, kWarps, kKeys>;
  constexpr int kStride = Tiles::kStride;
  extern __shared__ __align__(128) unsigned char memory[];
  const Tiles tiles(memory);
  const auto q_rows = static_cast<int>(p.shape.q_rows);
  const int b = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.x) % splits.count;
  const int first_row = static_cast<int>(blockIdx.x) / splits.count * Tiles::kRows;
  const int all = p.group() * q_rows;
  const int first_head = kv_head * p.group();
  const int depth = padded_depth(p.shape.qk_size), width = padded_depth(p.shape.v_size);

  KeySpan span = block_span(p, b, first_row, Tiles::kRows, all);
  const int begin_tile = span.begin / kKeys;
  const int tile_count = span.end > span.begin ? (span.end + kKeys - 1) / kKeys - begin_tile : 0;
  const int tile_begin = begin_tile + tile_count * split / splits.count;
  const int tile_end = begin_tile + tile_count * (split + 1) / splits.count;

  copy_tile<kColumns>(tiles.q, Tiles::kRows, depth, first_row, 0, all,
                      static_cast<int>(p.shape.qk_size), p.whole,
                      [&](int m) { return row_at(p.q, b, first_head + m / q_rows, m % q_rows); });
  const auto copy_keys = [&](int tile) {
    copy_tile<kColumns>(tiles.k, kKeys, depth, tile * kKeys, span.begin, span.end,
                        static_cast<int>(p.shape.qk_size), p.whole,
                        [&](int j) { return p.key_row(p.k, b, kv_head, j); });
  };
  if (tile_begin < tile_end) copy_keys(tile_begin);

  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  QueryRow row[2];
  RowState state[2];
  int m[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    m[half] = first_row + warp * kTileRows + lane / 4 + half * 8;
    if (m[half] < all) row[half] = query_row(p, b, first_head + m[half] / q_rows, m[half] % q_rows);
  }
  float out[kColumns / 8][4] = {};
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int first = tile * kKeys;
    load_key_scales<T, kKeys>(p, b, kv_head, first, span, tiles.a_k, tiles.a_v);
    copy_tile<kColumns>(tiles.v, kKeys, width, first, span.begin, span.end,
                        static_cast<int>(p.shape.v_size), p.whole,
                        [&](int j) { return p.key_row(p.v, b, kv_head, j); });
    tile_wait<1>();
    __syncthreads();
    float c[kKeys / 8][4];
    product_rows(c, tiles.q + warp * kTileRows * kStride, kStride, tiles.k, kStride, depth);
    __syncthreads();
    if (tile + 1 < tile_end)
      copy_keys(tile + 1);
    else
      asm volatile("cp.async.commit_group;");  // an empty one, so that waiting counts alike
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (first_row + warp * kTileRows + half * 8 >= all) {  // no such rows: a decode of a few
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) c[n][half * 2] = c[n][half * 2 + 1] = 0;
        continue;
      }
      const float shrink = update_row(p, row[half], state[half], first, tiles.a_k, tiles.a_v, half,
                                      o.entropy.data != nullptr, c);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        out[n][half * 2] *= shrink;
        out[n][half * 2 + 1] *= shrink;
      }
    }
    tile_wait<1>();
    __syncthreads();
    add_product(out, c, tiles.v, kStride, width);
    __syncthreads();
  }
  tile_wait<0>();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state[half].sum = sum_quad(state[half].sum);
    state[half].below = sum_quad(state[half].below);
    if (m[half] >= all) continue;
    const int h = first_head + m[half] / q_rows, i = m[half] % q_rows;
    const int64_t dense = ((b * p.shape.q_heads + h) * p.shape.q_rows + i) * splits.count + split;
    const float factor = splits.count > 1 ? 1 : row_factor(p, h, state[half]);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = n * 8 + lane % 4 * 2 + e;
        if (column >= p.shape.v_size) continue;
        const float value = out[n][half * 2 + e] * factor;
        if (splits.count > 1)
          splits.out[dense * p.shape.v_size + column] = value;
        else
          row_at(o.out, b, h, i)[column] = from_float<T>(value);
      }
    if (lane % 4 != 0) continue;
    if (splits.count == 1) {
      write_statistics(p, o, b, h, i, state[half]);
    } else {
      splits.state[dense * 3] = state[half].max;
      splits.state[dense * 3 + 1] = state[half].sum;
      splits.state[dense * 3 + 2] = state[half].below;
    }
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

template <int kWarps, class T>
void launch(const Problem<T>& p, const AttentionOutputs<T>& o, const Splits& splits,
            Stream stream) {
  const Shape& s = p.shape;
  if (o.head_max)
    fill_kernel<<<static_cast<unsigned>(ceil_div(s.q_heads, 128)), 128, 0, stream>>>(
        o.head_max, static_cast<int>(s.q_heads), -INFINITY);
  if (s.batch * s.q_rows == 0) return check_launch("attention_forward");
  with_columns(s, [&]<int kColumns>() {
    constexpr int kKeys = kColumns > 128 || kWarps == 1 ? 32 : 64;
    using Tiles = ForwardTiles<T, kColumns, kWarps, kKeys>;
    const auto kernel = forward_kernel<T, kColumns, kWarps, kKeys>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(Tiles::kBytes));
    const int64_t rows = s.q_heads / s.kv_heads * s.q_rows;
    const dim3 grid(static_cast<unsigned>(ceil_div(rows, Tiles::kRows) * splits.count),
                    static_cast<unsigned>(s.kv_heads), static_cast<unsigned>(s.batch));
    kernel<<<grid, kWarps * kWarp, Tiles::kBytes, stream>>>(p, o, splits);
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
  launch<4>(make_problem(params, scales), outputs, {}, stream);
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
  launch<1>(problem, outputs, make_splits<T>(attention.shape, pieces), stream);
}

#define TEMPERA_INSTANTIATE(T)                                                                  \
  template size_t attention_forward_workspace(const AttentionParams<T>&);                       \
  template void attention_forward(const AttentionParams<T>&, const AttentionOutputs<T>&, void*, \
                                  Stream);                                                      \
  template size_t decode_workspace(const DecodeParams<T>&);                                     \
  template void decode(const DecodeParams<T>&, const AttentionOutputs<T>&, void*, Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
