#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/fused.h"
#include "tempera/kernels/cuda/reduce.cuh"

namespace tempera::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Keys to sort by: an id below 0 goes to the end.
__global__ void __launch_bounds__(kThreads)
    key_kernel(int64_t rows, int64_t classes, const int64_t* ids, uint32_t* keys, uint32_t* order) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= rows) return;
  keys[r] = static_cast<uint32_t>(ids[r] < 0 ? classes : ids[r]);
  order[r] = static_cast<uint32_t>(r);
}

// A block for every place in the sorted list; the one where an id begins sums that id's rows, each
// warp a run of them, and the warps one after the other.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ EmbeddingGradient<T> p, const uint32_t* keys,
               const uint32_t* order, bool whole) {
  const int64_t begin = blockIdx.x;
  const uint32_t id = keys[begin];
  if (id >= p.classes || (begin > 0 && keys[begin - 1] == id)) return;
  int64_t end = begin;  // the first place behind this id
  for (int same = kThreads; same == kThreads; end += same) {
    const int64_t at = end + threadIdx.x;
    same = __syncthreads_count(at < p.rows && keys[at] == id);
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t share = ceil_div(end - begin, kWarps);
  const int64_t first = begin + warp * share, last = min(end, first + share);
  const int used = static_cast<int>(ceil_div(end - begin, share));
  __shared__ float shared[kWarps][kWarp * kPack];
  for (int64_t base = 0; base < p.size; base += kWarp * kPack) {
    const int64_t column = base + lane * kPack;
    float sum[kPack] = {};
    if (column < p.size) {
#pragma unroll 4
      for (int64_t at = first; at < last; ++at) {
        float row[kPack];
        load_floats(p.d_y + int64_t{order[at]} * p.size + column, whole, row);
#pragma unroll
        for (int i = 0; i < kPack; ++i) sum[i] += row[i];
      }
    }
    if (used > 1) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kPack; ++i) shared[warp][lane * kPack + i] = sum[i];
      __syncthreads();
      for (int w = 1; w < used && warp == 0; ++w)
#pragma unroll
        for (int i = 0; i < kPack; ++i) sum[i] += shared[w][lane * kPack + i];
    }
    if (warp != 0 || column >= p.size) continue;
    float* const to = p.d_table + int64_t{id} * p.size + column;
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = sum[i];
  }
}

constexpr size_t kAlignment = 256;
size_t padded(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// The four lists of the sort, and what the sort itself needs.
size_t list_size(int64_t rows) { return padded(sizeof(uint32_t) * static_cast<size_t>(rows)); }

size_t sort_size(int64_t rows) {
  size_t size = 0;
  const uint32_t* from = nullptr;
  uint32_t* to = nullptr;
  const cudaError_t status =
      cub::DeviceRadixSort::SortPairs(nullptr, size, from, to, from, to, static_cast<int>(rows));
  TEMPERA_CHECK(status == cudaSuccess, "sorting tokens: ", cudaGetErrorString(status));
  return size;
}

}  // namespace

size_t embedding_backward_workspace(int64_t rows) {
  return rows == 0 ? 0 : 4 * list_size(rows) + sort_size(rows);
}

template <class T>
void embedding_backward(const EmbeddingGradient<T>& params, void* workspace, Stream stream) {
  TEMPERA_CHECK(
      takes_columns(params.size) && params.rows <= INT32_MAX && params.classes < INT32_MAX,
      "gradient of an embedding: ", params.rows, " rows of ", params.size, " columns and ",
      params.classes, " classes do not fit");
  cudaMemsetAsync(params.d_table, 0,
                  sizeof(float) * static_cast<size_t>(params.classes * params.size), stream);
  if (params.rows == 0) return check_launch("embedding_backward");
  auto* bytes = static_cast<unsigned char*>(workspace);
  uint32_t* lists[4];
  for (uint32_t*& list : lists) {
    list = reinterpret_cast<uint32_t*>(bytes);
    bytes += list_size(params.rows);
  }
  const auto rows = static_cast<unsigned>(params.rows);
  key_kernel<<<static_cast<unsigned>(ceil_div(params.rows, kThreads)), kThreads, 0, stream>>>(
      params.rows, params.classes, params.ids, lists[0], lists[2]);
  size_t size = sort_size(params.rows);
  cub::DeviceRadixSort::SortPairs(bytes, size, lists[0], lists[1], lists[2], lists[3],
                                  static_cast<int>(params.rows), 0,
                                  std::bit_width(static_cast<uint64_t>(params.classes)), stream);
  sum_kernel<<<rows, kThreads, 0, stream>>>(params, lists[1], lists[3],
                                            aligned(params.d_y, params.size));
  check_launch("embedding_backward");
}

template void embedding_backward(const EmbeddingGradient<float>&, void*, Stream);
template void embedding_backward(const EmbeddingGradient<BFloat16>&, void*, Stream);

}  // namespace tempera::kernels::cuda
