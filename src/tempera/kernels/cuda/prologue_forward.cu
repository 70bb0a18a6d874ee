#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/prologue.cuh"

namespace tempera::kernels::cuda {
namespace {

template <class T, int kLanes, bool kWhole, class Kind>
__global__ void __launch_bounds__(kPrologueWarps* kWarp, sizeof(T) == 2 ? 8 : 6)
    forward_kernel(const __grid_constant__ PrologueParams<T> p,
                   const __grid_constant__ PrologueOutputs<T> outputs, int rows) {
  const int64_t slot = int64_t{blockIdx.x} * kPrologueWarps + threadIdx.x / kWarp;
  if (slot >= p.q.heads + p.k.heads + p.v.heads) return;
  const int64_t b = blockIdx.z;
  __shared__ alignas(16) float shared[kPrologueShared<kLanes>];
  const PrologueLane<T, kLanes, kWhole, Kind> lane(p, slot, b, shared);
  const Rows<T>& out = choose(lane.place.which, outputs.q, outputs.k, outputs.v);
  const Rows<const T>& in = choose(lane.place.which, p.x_q, p.x_k, p.x_v);
  const int begin = static_cast<int>(blockIdx.y) * rows;
  const int end = min(static_cast<int>(p.rows), begin + rows);
  constexpr int kStep = kWarp / kLanes;
  int t = begin + static_cast<int>(threadIdx.x) % kWarp / kLanes;
  const T* ahead = row_at(in, b, lane.place.head, t) + lane.first;
  const int64_t ahead_step = kStep * in.row;
  const auto fetch = [&](int at) {
    Pack<T> pack{};
    if (lane.live && at < end) pack = lane.load(ahead);
    ahead += ahead_step;
    return pack;
  };
  T* to = row_at(out, b, lane.place.head, t) + lane.first;
  const int64_t to_step = kStep * out.row;
  // The next two rows are on their way while this one is computed.
  Pack<T> next = fetch(t), after = fetch(t + kStep);
#pragma unroll 1
  for (int base = begin; base < end; base += kStep, t += kStep) {
    float y[kPack];
    unpack(next, y);
    next = after;
    after = fetch(t + 2 * kStep);
    if constexpr (Kind::kNorms) lane.add_bias(y);
    float f = 0;
    if (lane.w) {
      float w[kPack];
      unpack(lane.load(lane.w, true), w);
#pragma unroll
      for (int i = 0; i < kPack; ++i) f = fmaf(w[i] * y[i], normal_at(y[i]).below, f);
    }
    const int safe = min(t, end - 1);
    const PrologueRow<T, kLanes, kWhole, Kind> row(p, lane, b, safe, y, f);
    if constexpr (Kind::kNorms)
      if (lane.norm) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) y[i] *= row.rstd;
        lane.multiply_gain(y);
      }
    lane.rotate(p, b, safe, 1, y);
    if (lane.recipe || lane.finished)
#pragma unroll
      for (int i = 0; i < kPack; ++i) y[i] *= row.a;
    if (lane.live && t < end) lane.store(to, pack_of<T>(y));
    to += to_step;
  }
}

}  // namespace

template <class T>
void prologue_forward(const PrologueParams<T>& params, const PrologueOutputs<T>& outputs,
                      Stream stream) {
  validate(params);
  if (params.batch * params.rows == 0) return;
  bool whole = aligned(params.cos, 0) && aligned(params.sin, 0);
  if (params.q.heads) whole = whole && aligned(params.x_q) && aligned(outputs.q);
  if (params.k.heads) whole = whole && aligned(params.x_k) && aligned(outputs.k);
  if (params.v.heads) whole = whole && aligned(params.x_v) && aligned(outputs.v);
  with_variant(params, whole, [&]<int kLanes, bool kWhole, class Kind>() {
    forward_kernel<T, kLanes, kWhole, Kind>
        <<<prologue_grid(params), kPrologueWarps * kWarp, 0, stream>>>(params, outputs,
                                                                       prologue_rows(params));
  });
  check_launch("prologue_forward");
}

template void prologue_forward(const PrologueParams<float>&, const PrologueOutputs<float>&, Stream);
template void prologue_forward(const PrologueParams<BFloat16>&, const PrologueOutputs<BFloat16>&,
                               Stream);

}  // namespace tempera::kernels::cuda
