#pragma once

#include "tempera/kernels/cuda/device.cuh"

namespace tempera::kernels::cuda {

// The sum (or maximum) over a block of up to 1024 threads, the same bits in every thread.
template <class Combine>
__device__ inline float over_block(float value, float neutral, Combine combine) {
  __shared__ float shared[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x + kWarp - 1) / kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  __syncthreads();  // an earlier call may still be read
  if (lane == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = lane < warps ? shared[lane] : neutral;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}
__device__ inline float sum_block(float value) {
  return over_block(value, 0, [](float a, float b) { return a + b; });
}
__device__ inline float max_block(float value) {
  return over_block(value, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

constexpr int kColumnReducers = 16;

// out[column] = the sum of `count` rows of partial sums, in a fixed order. Block (kWarp,
// kColumnReducers), a block for every kWarp columns.
__device__ inline void sum_columns(const float* partial, int64_t count, int64_t stride,
                                   int64_t columns, float* out) {
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (int64_t i = threadIdx.y; i < count; i += kColumnReducers)
      sum += partial[i * stride + column];
  __shared__ float shared[kColumnReducers][kWarp];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < kColumnReducers; ++i) sum += shared[i][threadIdx.x];
  out[column] = sum;
}

}  // namespace tempera::kernels::cuda
