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

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    forward_kernel(const __grid_constant__ Problem<T> p,
                   const __grid_constant__ AttentionOutputs<T> o, Splits splits) {
  constexpr int kKeys = S::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  const ForwardTiles<T, S> tiles(memory);
  const ForwardBlock<T, S> block(p, splits);
  block.copy_queries(tiles.q);
  const KeySpan span = load_rows(block, tiles.rows);
  const TileRange range = tiles_of<S>(span, block.split, splits.count);
  if (range.begin < range.end) block.copy_keys(p.k, tiles.k, block.qk_size, range.begin, span);

  ForwardRows<T, S> rows(block, tiles.rows);
  for (int tile = range.begin; tile < range.end; ++tile) {
    const int first = tile * kKeys;
    const bool seen = rows.keys.touches(first, kKeys);
    if (!S::kDecode) await_copies<0>();
    __syncthreads();  // the values before are read
    if (!S::kPlain) load_key_scales(block, first, span, tiles.a_k, tiles.a_v);
    block.copy_keys(p.v, tiles.v, block.v_size, tile, span);
    if (S::kDecode) {
      await_copies<1>();
      __syncthreads();
    }
    float c[S::kM][kKeys / 8][4];
    if (seen)
      product_rows<S::kColumns>(c, tiles.q + rows.warp_row * S::kStride, tiles.k,
                                padded_depth(block.qk_size));
    if (!S::kDecode) await_copies<0>();
    __syncthreads();  // the keys are read
    if (tile + 1 < range.end)
      block.copy_keys(p.k, tiles.k, block.qk_size, tile + 1, span);
    else
      commit_copies();  // of nothing, so that waiting counts alike
    if (seen)
      rows.update(block, tiles.rows,
                  {first, !rows.keys.holds(first, kKeys), rows.signs, o.entropy.data != nullptr,
                   tiles.a_k, tiles.a_v},
                  c);
    if (S::kDecode) {
      await_copies<1>();
      __syncthreads();
    }
    if (seen) add_product(rows.out, c, tiles.v, padded_depth(block.v_size));
  }
  await_copies<0>();
  rows.write(block, o, splits);
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
