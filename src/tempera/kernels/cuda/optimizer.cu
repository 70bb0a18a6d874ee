#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/fused.h"
#include "tempera/kernels/cuda/reduce.cuh"

namespace tempera::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 16 * kThreads * kPack;  // numbers of a block

__device__ inline bool whole_vectors(const OptimizerTensor& t) {
  return aligned(t.master, 0) && aligned(t.value, 0) && aligned(t.gradient, 0) &&
         aligned(t.gradient_bf16, 0) && aligned(t.mean, 0) && aligned(t.square, 0);
}

// The numbers of a pack that exist, the rest 0.
template <class T>
__device__ inline void load_left(const T* from, int left, bool whole, float (&to)[kPack]) {
  if (left == kPack) return load_floats(from, whole, to);
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = i < left ? to_float(from[i]) : 0;
}
template <class T>
__device__ inline void store_left(T* to, int left, bool whole, const float (&from)[kPack]) {
  const Pack<T> pack = pack_of<T>(from);
  if (left == kPack) return store_pack(to, pack, whole);
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    if (i < left) to[i] = pack.element(i);
}

__device__ inline void load_gradient(const OptimizerTensor& t, int64_t at, int left, bool whole,
                                     float (&to)[kPack]) {
  if (t.gradient)
    load_left(t.gradient + at, left, whole, to);
  else
    load_left(t.gradient_bf16 + at, left, whole, to);
}

// Calls body(first number, how many) for the packs of this block's chunk.
template <class Body>
__device__ inline void each_pack(const OptimizerTensor& t, int64_t first, Body body) {
  const int64_t end = min(t.count, first + kChunk);
  for (int64_t at = first + int64_t{threadIdx.x} * kPack; at < end; at += kThreads * kPack)
    body(at, static_cast<int>(min(int64_t{kPack}, end - at)));
}

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const OptimizerList list, const AdamWStep* step, const float* clip) {
  const OptimizerChunk chunk = list.chunks[blockIdx.x];
  const OptimizerTensor t = list.tensors[chunk.tensor];
  const AdamWStep s = *step;
  const float factor = clip ? *clip : 1;
  if (!isfinite(factor)) return;
  const float rate = s.rate * t.rate_factor;
  const float keep = 1 - rate * t.decay;
  const float step_size = rate / s.correction1;
  const float root = rsqrtf(s.correction2);
  const bool whole = whole_vectors(t);
  each_pack(t, chunk.first, [&](int64_t at, int left) {
    float p[kPack], g[kPack], m[kPack], v[kPack];
    load_left(t.master + at, left, whole, p);
    load_gradient(t, at, left, whole, g);
    load_left(t.mean + at, left, whole, m);
    load_left(t.square + at, left, whole, v);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      g[i] *= factor;
      m[i] = fmaf(s.beta1, m[i], (1 - s.beta1) * g[i]);
      v[i] = fmaf(s.beta2, v[i], (1 - s.beta2) * g[i] * g[i]);
      p[i] = p[i] * keep - step_size * m[i] / fmaf(sqrtf(v[i]), root, s.epsilon);
    }
    store_left(t.master + at, left, whole, p);
    store_left(t.mean + at, left, whole, m);
    store_left(t.square + at, left, whole, v);
    if (t.value) store_left(t.value + at, left, whole, p);
  });
}

__global__ void __launch_bounds__(kThreads)
    square_kernel(const OptimizerList list, float* partial) {
  const OptimizerChunk chunk = list.chunks[blockIdx.x];
  const OptimizerTensor t = list.tensors[chunk.tensor];
  const bool whole = whole_vectors(t);
  float sum = 0;
  each_pack(t, chunk.first, [&](int64_t at, int left) {
    float g[kPack];
    load_gradient(t, at, left, whole, g);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum = fmaf(g[i], g[i], sum);
  });
  sum = sum_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

constexpr int kFinishThreads = 1024;

__global__ void __launch_bounds__(kFinishThreads)
    norm_kernel(const float* partial, int64_t count, float max_norm, float* result) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) sum += partial[i];
  const float norm = sqrtf(sum_block(sum));
  if (threadIdx.x != 0) return;
  result[0] = norm;
  result[1] = !isfinite(norm) ? norm : max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
}

}  // namespace

std::vector<OptimizerChunk> optimizer_chunks(std::span<const OptimizerTensor> tensors) {
  std::vector<OptimizerChunk> chunks;
  for (size_t t = 0; t < tensors.size(); ++t)
    for (int64_t first = 0; first < tensors[t].count; first += kChunk)
      chunks.push_back({first, static_cast<int64_t>(t)});
  return chunks;
}

void adamw(const OptimizerList& list, const AdamWStep* step, const float* factor, Stream stream) {
  if (list.chunk_count == 0) return;
  adamw_kernel<<<static_cast<unsigned>(list.chunk_count), kThreads, 0, stream>>>(list, step,
                                                                                 factor);
  check_launch("adamw");
}

size_t gradient_norm_workspace(int64_t chunk_count) {
  return sizeof(float) * static_cast<size_t>(chunk_count);
}

void gradient_norm(const OptimizerList& list, float max_norm, float* result, void* workspace,
                   Stream stream) {
  auto* partial = static_cast<float*>(workspace);
  if (list.chunk_count > 0)
    square_kernel<<<static_cast<unsigned>(list.chunk_count), kThreads, 0, stream>>>(list, partial);
  norm_kernel<<<1, kFinishThreads, 0, stream>>>(partial, list.chunk_count, max_norm, result);
  check_launch("gradient_norm");
}

}  // namespace tempera::kernels::cuda
