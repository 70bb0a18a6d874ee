#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "tempera/kernels/attention.h"

// What the device code shares: numbers, packs of eight of them, sums over lanes.
namespace tempera::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kPack = 8;  // elements that a lane moves at once
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(BFloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// Rows::at, for the device.
template <class T>
__device__ inline T* row_at(const Rows<T>& rows, int64_t b, int64_t h, int64_t r) {
  return rows.data + b * rows.batch + h * rows.head + r * rows.row;
}

// Eight elements as they lie in memory.
template <class T>
struct alignas(16) Pack {
  T at[kPack];
};

// Whether packs at this address can be moved as whole vectors. Uniform over a launch.
template <class T>
__host__ __device__ inline bool aligned(const T* pointer, int64_t stride) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 &&
         (stride * static_cast<int64_t>(sizeof(T))) % 16 == 0;
}
template <class T>
__host__ __device__ inline bool aligned(const Rows<T>& rows) {
  return aligned(rows.data, rows.batch) && aligned(rows.data, rows.head) &&
         aligned(rows.data, rows.row);
}

template <class T>
__device__ inline Pack<T> load_pack(const T* from, bool whole) {
  Pack<T> pack;
  if (whole) {
    const uint4* vectors = reinterpret_cast<const uint4*>(from);
    uint4* to = reinterpret_cast<uint4*>(&pack);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pack) / sizeof(uint4)); ++i) to[i] = vectors[i];
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.at[i] = from[i];
  }
  return pack;
}

template <class T>
__device__ inline void store_pack(T* to, const Pack<T>& pack, bool whole) {
  if (whole) {
    const uint4* from = reinterpret_cast<const uint4*>(&pack);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pack) / sizeof(uint4)); ++i)
      reinterpret_cast<uint4*>(to)[i] = from[i];
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = pack.at[i];
  }
}

template <class T>
__device__ inline void unpack(const Pack<T>& pack, float (&to)[kPack]) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = to_float(pack.at[i]);
}

template <class T>
__device__ inline Pack<T> pack_of(const float (&from)[kPack]) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.at[i] = from_float<T>(from[i]);
  return pack;
}

template <class T>
__device__ inline void load_floats(const T* from, bool whole, float (&to)[kPack]) {
  unpack(load_pack(from, whole), to);
}

// The sum over kLanes neighbouring lanes, the same bits in each of them.
template <int kLanes>
__device__ inline float sum_lanes(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(kAllLanes, value, step, kLanes);
  return value;
}
template <int kLanes>
__device__ inline float max_lanes(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step, kLanes));
  return value;
}

// The normal distribution at x: its integral to within 1e-7 (Abramowitz and Stegun 7.1.26) and its
// density, which share one exponential.
struct Normal {
  float below;
  float density;
};
__device__ inline Normal normal_at(float x) {
  const float z = fabsf(x) * 0.70710678118654752F;
  const float t = __fdividef(1.0F, fmaf(0.3275911F, z, 1.0F));
  const float e = __expf(-z * z);
  float tail = fmaf(t, 0.530702715F, -0.726576014F);
  tail = fmaf(t, tail, 0.710706871F);
  tail = fmaf(t, tail, -0.142248368F);
  tail = fmaf(t, tail, 0.127414796F);
  tail *= t * e;
  return {x >= 0 ? 1 - tail : tail, e * 0.39894228040143268F};
}

// Absolute error of about 1e-7, whatever the size of x.
__device__ inline float tanh_of(float x) { return 1 - __fdividef(2.0F, __expf(2 * x) + 1); }

}  // namespace tempera::kernels::cuda
