#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/prologue.cuh"

namespace tempera::kernels::cuda {
namespace {

template <class T, int kLanes>
__global__ void __launch_bounds__(kPrologueWarps* kWarp, 3)
    forward_kernel(const __grid_constant__ PrologueParams<T> p,
                   const __grid_constant__ PrologueOutputs<T> outputs, bool whole,
                   bool whole_table) {
  const int64_t slot = int64_t{blockIdx.y} * kPrologueWarps + threadIdx.x / kWarp;
  if (slot >= p.q.heads + p.k.heads + p.v.heads) return;
  const PrologueLane<T, kLanes> lane(p, slot);
  const Rows<T>& out = choose(lane.place.which, outputs.q, outputs.k, outputs.v);
  const int64_t b = blockIdx.z;
  const int64_t end = min(p.rows, (int64_t{blockIdx.x} + 1) * kPrologueRows);
  constexpr int kStep = kWarp / kLanes;
  const T* const x = p.x + b * p.rows * p.stride + lane.place.column + lane.first;
  // The row after this one is on its way while this one is computed.
  int64_t t = int64_t{blockIdx.x} * kPrologueRows + threadIdx.x % kWarp / kLanes;
  Pack<T> next{};
  if (lane.live && t < end) next = load_pack(x + t * p.stride, whole);
  for (int64_t base = int64_t{blockIdx.x} * kPrologueRows; base < end; base += kStep, t += kStep) {
    const Pack<T> pack = next;
    const bool active = lane.live && t < end;
    if (lane.live && t + kStep < end) next = load_pack(x + (t + kStep) * p.stride, whole);
    float y[kPack], gelu[kPack];
    unpack(pack, y);
#pragma unroll
    for (int i = 0; i < kPack; ++i) y[i] = active ? y[i] + lane.bias[i] : 0;
    if (lane.operand.scale.w)
#pragma unroll
      for (int i = 0; i < kPack; ++i) gelu[i] = y[i] * normal_at(y[i]).below;
    const int64_t safe = min(t, end - 1);
    const PrologueRow<T, kLanes> row(p, lane, b, safe, y, gelu);
#pragma unroll
    for (int i = 0; i < kPack; ++i) y[i] *= row.rstd * lane.gain[i];
    lane.rotate(p, b, safe, whole_table, 1, y);
#pragma unroll
    for (int i = 0; i < kPack; ++i) y[i] *= row.a;
    if (active) store_pack(row_at(out, b, lane.place.head, t) + lane.first, pack_of<T>(y), whole);
  }
}

}  // namespace

template <class T>
void prologue_forward(const PrologueParams<T>& params, const PrologueOutputs<T>& outputs,
                      Stream stream) {
  validate(params);
  if (params.batch * params.rows == 0) return;
  bool whole = aligned(params.x, params.stride);
  if (params.q.heads) whole = whole && aligned(outputs.q);
  if (params.k.heads) whole = whole && aligned(outputs.k);
  if (params.v.heads) whole = whole && aligned(outputs.v);
  const bool whole_table = aligned(params.cos, 0) && aligned(params.sin, 0);
  with_lanes(prologue_size(params), [&]<int kLanes>() {
    forward_kernel<T, kLanes><<<prologue_grid(params), kPrologueWarps * kWarp, 0, stream>>>(
        params, outputs, whole, whole_table);
  });
  check_launch("prologue_forward");
}

template void prologue_forward(const PrologueParams<float>&, const PrologueOutputs<float>&, Stream);
template void prologue_forward(const PrologueParams<BFloat16>&, const PrologueOutputs<BFloat16>&,
                               Stream);

}  // namespace tempera::kernels::cuda
