#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/cuda/normal.h"

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

// Eight elements as they lie in memory, held as whole words: halves of words would take a register
// each.
template <class T>
struct Pack;
template <>
struct Pack<float> {
  static constexpr int kWords = 8;
  alignas(16) uint32_t word[kWords];

  __device__ float get(int i) const { return __uint_as_float(word[i]); }
  __device__ float element(int i) const { return get(i); }
  __device__ static Pack gather(const float* from) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < kWords; ++i) pack.word[i] = __float_as_uint(from[i]);
    return pack;
  }
  __device__ static Pack round(const float (&from)[kPack]) { return gather(from); }
};
template <>
struct Pack<BFloat16> {
  static constexpr int kWords = 4;
  alignas(16) uint32_t word[kWords];

  __device__ float get(int i) const {
    return __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xFFFF0000U);
  }
  __device__ BFloat16 element(int i) const {
    return {static_cast<uint16_t>(i % 2 == 0 ? word[i / 2] : word[i / 2] >> 16)};
  }
  __device__ static Pack gather(const BFloat16* from) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      pack.word[i] = uint32_t{from[2 * i].bits} | uint32_t{from[2 * i + 1].bits} << 16;
    return pack;
  }
  __device__ static Pack round(const float (&from)[kPack]) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
      pack.word[i] = *reinterpret_cast<const uint32_t*>(&two);
    }
    return pack;
  }
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
  if (!whole) return Pack<T>::gather(from);
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < Pack<T>::kWords; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(from + i * kPack / Pack<T>::kWords);
    pack.word[i] = four.x;
    pack.word[i + 1] = four.y;
    pack.word[i + 2] = four.z;
    pack.word[i + 3] = four.w;
  }
  return pack;
}

// Copies kBytes into shared memory while the thread goes on, of which the first `count` are read
// and the others become 0.
template <int kBytes>
__device__ inline void copy_bytes(void* to, const void* from, int count) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(count));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from),
                 "n"(kBytes), "r"(count));
}
// Ends a group of copies; waits until at most kLeft groups of this thread are under way.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
}

template <class T>
__device__ inline void store_pack(T* to, const Pack<T>& pack, bool whole) {
  if (whole) {
#pragma unroll
    for (int i = 0; i < Pack<T>::kWords; i += 4)
      *reinterpret_cast<uint4*>(to + i * kPack / Pack<T>::kWords) =
          make_uint4(pack.word[i], pack.word[i + 1], pack.word[i + 2], pack.word[i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = pack.element(i);
  }
}

// A pack in two halves, `gap` elements from one to the other.
template <class T>
__device__ inline Pack<T> load_halves(const T* from, int gap, bool whole) {
  constexpr int kHalf = Pack<T>::kWords / 2;
  Pack<T> pack;
  if (whole) {
    using Vector = std::conditional_t<kHalf == 4, uint4, uint2>;
    *reinterpret_cast<Vector*>(pack.word) = *reinterpret_cast<const Vector*>(from);
    *reinterpret_cast<Vector*>(pack.word + kHalf) = *reinterpret_cast<const Vector*>(from + gap);
  } else {
    T elements[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) elements[i] = from[i < kPack / 2 ? i : gap + i - kPack / 2];
    pack = Pack<T>::gather(elements);
  }
  return pack;
}
template <class T>
__device__ inline void store_halves(T* to, int gap, const Pack<T>& pack, bool whole) {
  constexpr int kHalf = Pack<T>::kWords / 2;
  if (whole) {
    using Vector = std::conditional_t<kHalf == 4, uint4, uint2>;
    *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(pack.word);
    *reinterpret_cast<Vector*>(to + gap) = *reinterpret_cast<const Vector*>(pack.word + kHalf);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i < kPack / 2 ? i : gap + i - kPack / 2] = pack.element(i);
  }
}

template <class T>
__device__ inline void unpack(const Pack<T>& pack, float (&to)[kPack]) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = pack.get(i);
}

template <class T>
__device__ inline Pack<T> pack_of(const float (&from)[kPack]) {
  return Pack<T>::round(from);
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

// 2^x and 1 / x as the hardware gives them, relative error 2^-22, tiny numbers flushed to 0. exp(x)
// by way of 2^x carries an error of |x| * 2^-24 more.
__device__ inline float quick_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float quick_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
constexpr float kLog2E = 1.44269504088896341F;
__device__ inline float quick_exp(float x) { return quick_exp2(x * kLog2E); }

// Absolute error of 2^-22 times the result, or that of log 2 near 1.
__device__ inline float quick_log(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y * 0.693147180559945309F;
}

// As the hardware gives it: promised to 2^-11 of the result, often far better.
__device__ inline float quick_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The normal distribution: its integral up to x, and its density.
struct Normal {
  float below;
  float density;
};
// 2 below - 1 for what comes from bf16.
__device__ inline float normal_tanh(float x) {
  using Fit = NormalFit;
  const float z = fminf(x * x, Fit::kEnd);
  return quick_tanh(x * fmaf(fmaf(z, Fit::kThird, Fit::kSecond), z, Fit::kFirst));
}
// To within 3e-7 otherwise, by Abramowitz and Stegun 26.2.17: the integral beyond |x| is the
// density times a polynomial.
template <class T = float>
__device__ inline Normal normal_at(float x) {
  constexpr float kLog2Top = -1.32574806473616F;  // of the density at 0, 1 / sqrt(2 pi)
  const float density = quick_exp2(fmaf(x * x, -0.5F * kLog2E, kLog2Top));
  if constexpr (sizeof(T) == 2) return {fmaf(0.5F, normal_tanh(x), 0.5F), density};
  const float t = quick_inverse(fmaf(0.231641888F, fabsf(x), 1.0F));
  float sum = fmaf(t, 1.330274429F, -1.821255978F);
  sum = fmaf(t, sum, 1.781477937F);
  sum = fmaf(t, sum, -0.356563782F);
  sum = fmaf(t, sum, 0.319381530F);
  const float above = sum * (t * density);
  return {x >= 0 ? 1 - above : above, density};
}
template <class T>
__device__ inline float gelu_of(float x) {
  if constexpr (sizeof(T) == 2) return fmaf(0.5F * x, normal_tanh(x), 0.5F * x);
  return x * normal_at<T>(x).below;
}

__device__ inline float sigmoid_of(float x) { return quick_inverse(1 + quick_exp2(-kLog2E * x)); }

// Absolute error of about 1e-7, whatever the size of x.
__device__ inline float tanh_of(float x) {
  return fmaf(-2.0F, quick_inverse(quick_exp2(x * (2 * kLog2E)) + 1), 1.0F);
}

}  // namespace tempera::kernels::cuda
