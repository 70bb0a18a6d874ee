#include "tempera/base/error.h"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/fused.h"
#include "tempera/kernels/cuda/reduce.cuh"

namespace tempera::kernels::cuda {
namespace {

constexpr int kThreads = 512;

// Of the logits seen so far.
struct Statistics {
  float max = -INFINITY;
  float sum = 0;  // of exp(logit - max)
  float target = 0;
  float total = 0;  // of the logits

  __device__ float lse() const { return max + logf(sum); }
};

// Calls body(column, numbers, how many) for the row's columns, eight at a time; the next eight are
// on their way meanwhile. Columns that do not exist are -inf.
template <class T, class Body>
__device__ inline void each_pack(const T* row, int64_t count, bool whole, Body body) {
  constexpr int64_t kStep = int64_t{kThreads} * kPack;
  const int64_t full = count / kPack * kPack;
  const auto fetch = [&](int64_t column) {
    return column < full ? load_pack(row + column, whole) : Pack<T>{};
  };
  int64_t column = int64_t{threadIdx.x} * kPack;
  Pack<T> next = fetch(column), after = fetch(column + kStep);
  float x[kPack];
  for (; column < full; column += kStep) {
    unpack(next, x);
    next = after;
    after = fetch(column + 2 * kStep);
    body(column, x, kPack);
  }
  if (column != full || full == count) return;
  const int left = static_cast<int>(count - full);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = i < left ? to_float(row[full + i]) : -INFINITY;
  body(full, x, left);
}

template <class T>
__device__ Statistics row_statistics(const CrossEntropyParams<T>& p, const T* row, bool whole) {
  float max = -INFINITY, sum = 0, total = 0;
  each_pack(row, p.classes, whole, [&](int64_t, const float(&x)[kPack], int left) {
    float top = x[0];
#pragma unroll
    for (int i = 1; i < kPack; ++i) top = fmaxf(top, x[i]);
    if (top > max) {
      sum *= quick_exp(max - top);
      max = top;
    }
    if (max == -INFINITY) return;
    const float shift = -max * kLog2E;
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum += quick_exp2(fmaf(x[i], kLog2E, shift));
    if (p.smoothing > 0)
#pragma unroll
      for (int i = 0; i < kPack; ++i) total += i < left ? x[i] : 0;
  });
  Statistics all;
  all.max = max_block(max);
  all.sum = sum_block(max == -INFINITY ? 0 : sum * quick_exp(max - all.max));
  all.total = p.smoothing > 0 ? sum_block(total) : 0;
  return all;
}

template <class T>
__device__ void write_loss(const CrossEntropyParams<T>& p, int64_t r, int64_t target,
                           const Statistics& s) {
  if (threadIdx.x != 0) return;
  const float mean = s.total / static_cast<float>(p.classes);
  p.loss[r] = target < 0 ? 0
                         : s.lse() - (1 - p.smoothing) * s.target -
                               (p.smoothing > 0 ? p.smoothing * mean : 0);
}

template <class T>
__device__ void row_gradient(const CrossEntropyParams<T>& p, T* row, int64_t target,
                             const Statistics& s, float factor, bool whole) {
  if (target < 0) factor = 0;
  const float lse = s.lse();
  const float even = p.smoothing / static_cast<float>(p.classes);
  const float shift = -lse * kLog2E;
  each_pack(row, p.classes, whole, [&](int64_t column, const float(&x)[kPack], int left) {
    float d[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) d[i] = quick_exp2(fmaf(x[i], kLog2E, shift)) - even;
    const int64_t hit = target - column;
    if (hit >= 0 && hit < kPack)
#pragma unroll
      for (int i = 0; i < kPack; ++i) d[i] -= hit == i ? 1 - p.smoothing : 0;
#pragma unroll
    for (int i = 0; i < kPack; ++i) d[i] = target < 0 ? 0 : factor * d[i];
    const Pack<T> pack = pack_of<T>(d);
    if (left == kPack) return store_pack(row + column, pack, whole);
    for (int i = 0; i < left; ++i) row[column + i] = pack.element(i);
  });
}

template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ CrossEntropyParams<T> p,
                                                   const float* device_factor, bool whole) {
  const int64_t r = blockIdx.x;
  T* const row = p.logits + r * p.classes;
  const int64_t target = p.targets[r];
  Statistics s = row_statistics(p, row, whole);
  if (target >= 0 && target < p.classes) s.target = to_float(row[target]);
  write_loss(p, r, target, s);
  if constexpr (kGradient) {
    __syncthreads();  // the target's logit has been read
    const float factor = p.factor * (device_factor ? *device_factor : 1);
    row_gradient(p, row, target, s, factor, whole);
  }
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads)
    target_factor_kernel(int64_t rows, const int64_t* targets, float* factor) {
  float count = 0;  // exact up to 2^24 a thread
  for (int64_t r = threadIdx.x; r < rows; r += kSumThreads) count += targets[r] >= 0 ? 1 : 0;
  count = sum_block(count);
  if (threadIdx.x == 0) *factor = 1 / fmaxf(count, 1);
}

__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(int64_t count, const float* values, const float* factor, float* result) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += values[i];
  sum = sum_block(sum);
  if (threadIdx.x == 0) *result = factor ? sum * *factor : sum;
}

}  // namespace

template <class T>
void cross_entropy(const CrossEntropyParams<T>& params, const float* device_factor, Stream stream) {
  TEMPERA_CHECK(params.rows >= 0 && params.classes >= 1, "cross-entropy of ", params.rows,
                " rows of ", params.classes, " classes");
  if (params.rows == 0) return;
  const auto launch = params.gradient ? kernel<T, true> : kernel<T, false>;
  launch<<<static_cast<unsigned>(params.rows), kThreads, 0, stream>>>(
      params, device_factor, aligned(params.logits, params.classes));
  check_launch("cross_entropy");
}

void target_factor(int64_t rows, const int64_t* targets, float* factor, Stream stream) {
  target_factor_kernel<<<1, kSumThreads, 0, stream>>>(rows, targets, factor);
  check_launch("target_factor");
}

void sum(int64_t count, const float* values, const float* factor, float* sum, Stream stream) {
  sum_kernel<<<1, kSumThreads, 0, stream>>>(count, values, factor, sum);
  check_launch("sum");
}

template void cross_entropy(const CrossEntropyParams<float>&, const float*, Stream);
template void cross_entropy(const CrossEntropyParams<BFloat16>&, const float*, Stream);

}  // namespace tempera::kernels::cuda
