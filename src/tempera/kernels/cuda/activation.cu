#include "tempera/base/error.h"
#include "tempera/kernels/cuda/device.cuh"
#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/fused.h"

namespace tempera::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // of a thread

struct Point {
  float value;
  float slope;
};

template <Activation kKind>
__device__ inline Point evaluate(float x) {
  if constexpr (kKind == Activation::kSilu) {
    const float sigmoid = quick_inverse(1 + quick_exp(-x));
    return {x * sigmoid, sigmoid * fmaf(x, 1 - sigmoid, 1)};
  } else if constexpr (kKind == Activation::kGelu) {
    const Normal normal = normal_at(x);
    return {x * normal.below, fmaf(x, normal.density, normal.below)};
  } else {
    constexpr float kRoot = 0.79788456080286536F, kCubic = 0.044715F;  // sqrt(2 / pi)
    const float t = tanh_of(kRoot * fmaf(kCubic * x * x, x, x));
    const float inner = kRoot * fmaf(3 * kCubic * x, x, 1);
    return {0.5F * x * (1 + t), 0.5F * (1 + t + x * (1 - t * t) * inner)};
  }
}

// Where pack `index` of y, and of its gate and up, lie.
struct Place {
  int64_t y, gate, up;
};
__device__ inline Place place(int64_t index, int64_t size, bool gated) {
  const int64_t y = index * kPack;
  if (!gated) return {y, y, y};
  const int64_t gate = y + y / size * size;
  return {y, gate, gate + size};
}

template <class T, Activation kKind>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ ActivationParams<T> p, T* out, int64_t packs,
                   bool whole) {
  const int64_t base = int64_t{blockIdx.x} * kThreads * kPacks + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t index = base + k * kThreads;
    if (index >= packs) return;
    const Place at = place(index, p.size, p.gated);
    float x[kPack], up[kPack];
    load_floats(p.x + at.gate, whole, x);
    if (p.gated) load_floats(p.x + at.up, whole, up);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      x[i] = evaluate<kKind>(x[i]).value;
      if (p.gated) x[i] *= up[i];
    }
    store_pack(out + at.y, pack_of<T>(x), whole);
  }
}

template <class T, Activation kKind>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ ActivationParams<T> p, const T* d_y, T* d_x,
                    int64_t packs, bool whole) {
  const int64_t base = int64_t{blockIdx.x} * kThreads * kPacks + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t index = base + k * kThreads;
    if (index >= packs) return;
    const Place at = place(index, p.size, p.gated);
    float x[kPack], up[kPack], d[kPack];
    load_floats(p.x + at.gate, whole, x);
    load_floats(d_y + at.y, whole, d);
    if (p.gated) load_floats(p.x + at.up, whole, up);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const Point point = evaluate<kKind>(x[i]);
      x[i] = d[i] * point.slope;
      if (!p.gated) continue;
      x[i] *= up[i];
      up[i] = d[i] * point.value;
    }
    store_pack(d_x + at.gate, pack_of<T>(x), whole);
    if (p.gated) store_pack(d_x + at.up, pack_of<T>(up), whole);
  }
}

template <class T>
int64_t packs_of(const ActivationParams<T>& p) {
  TEMPERA_CHECK(takes_columns(p.size), "activation of rows of ", p.size,
                " columns: a multiple of 8 expected");
  return p.rows * p.size / kPack;
}

template <class Kernel>
void with_kind(Activation kind, Kernel kernel) {
  switch (kind) {
    case Activation::kSilu:
      return kernel.template operator()<Activation::kSilu>();
    case Activation::kGelu:
      return kernel.template operator()<Activation::kGelu>();
    case Activation::kGeluTanh:
      return kernel.template operator()<Activation::kGeluTanh>();
  }
}

unsigned blocks_of(int64_t packs) {
  return static_cast<unsigned>(ceil_div(packs, kThreads * kPacks));
}

}  // namespace

template <class T>
void activation_forward(const ActivationParams<T>& params, T* y, Stream stream) {
  const int64_t packs = packs_of(params);
  if (packs == 0) return;
  const bool whole = aligned(params.x, params.size) && aligned(y, 0);
  with_kind(params.kind, [&]<Activation kKind>() {
    forward_kernel<T, kKind><<<blocks_of(packs), kThreads, 0, stream>>>(params, y, packs, whole);
  });
  check_launch("activation_forward");
}

template <class T>
void activation_backward(const ActivationParams<T>& params, const T* d_y, T* d_x, Stream stream) {
  const int64_t packs = packs_of(params);
  if (packs == 0) return;
  const bool whole = aligned(params.x, params.size) && aligned(d_y, 0) && aligned(d_x, 0);
  with_kind(params.kind, [&]<Activation kKind>() {
    backward_kernel<T, kKind>
        <<<blocks_of(packs), kThreads, 0, stream>>>(params, d_y, d_x, packs, whole);
  });
  check_launch("activation_backward");
}

#define TEMPERA_INSTANTIATE(T)                                              \
  template void activation_forward(const ActivationParams<T>&, T*, Stream); \
  template void activation_backward(const ActivationParams<T>&, const T*, T*, Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
