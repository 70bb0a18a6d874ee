#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/launch.cuh"
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
  const PrologueHead place = prologue_head(p, slot);
  const int begin = static_cast<int>(blockIdx.y) * rows;
  const int end = min(static_cast<int>(p.rows), begin + rows);
  constexpr int kGroups = sizeof(T) == 2 && !Kind::kNorms ? 2 : 1;  // as registers allow
  using Stream = PrologueStream<T, kLanes, kWhole, 1, kGroups>;
  __shared__ alignas(16) T memory[kPrologueWarps][Stream::kMemory];
  await_earlier_kernels();
  __shared__ alignas(16) float shared[kPrologueShared<kLanes>];
  PrologueLane<T, kLanes, kWhole, Kind> lane(p, place, b, shared);
  Stream stream(memory[threadIdx.x / kWarp], choose(place.which, p.q, p.k, p.v).size, b, place.head,
                begin, end, {&choose(place.which, p.x_q, p.x_k, p.x_v)});
  lane.settle();
  const Rows<T>& out = choose(place.which, outputs.q, outputs.k, outputs.v);
  const auto forward_row = [&]<bool kReads>(int group, int t, T* to) {
    float y[kPack];
    lane.read(stream.row(group), y);
    if constexpr (Kind::kNorms) lane.add_bias(y);
    float f = 0;
    if constexpr (kReads) {
      float w[kPack];
      unpack(lane.load(lane.w, true), w);
#pragma unroll
      for (int i = 0; i < kPack; ++i) f = fmaf(w[i], gelu_of<T>(y[i]), f);
    }
    const int safe = min(t, end - 1);
    const PrologueRow<kReads, T, kLanes, kWhole, Kind> row(p, lane, safe, y, f);
    if constexpr (Kind::kNorms)
      if (lane.norm) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) y[i] *= row.rstd;
        lane.multiply_gain(y);
      }
    lane.rotate(p, b, safe, 1, y);
    if (kReads || lane.recipe || lane.finished)
#pragma unroll
      for (int i = 0; i < kPack; ++i) y[i] *= row.a;
    if (lane.live && t < end) lane.store(to, pack_of<T>(y));
  };
  const auto walk = [&]<bool kReads>() {
    walk_rows(lane, stream, out, b, begin, end, [&](int group, int t, T* to) {
      forward_row.template operator()<kReads>(group, t, to);
    });
  };
  if (lane.w)
    walk.template operator()<true>();
  else
    walk.template operator()<false>();
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
  const int rows = prologue_rows(params, 32);
  with_variant(params, whole, [&]<int kLanes, bool kWhole, class Kind>() {
    launch_ahead(forward_kernel<T, kLanes, kWhole, Kind>, prologue_grid(params, rows),
                 kPrologueWarps * kWarp, stream, params, outputs, rows);
  });
  check_launch("prologue_forward");
}

template void prologue_forward(const PrologueParams<float>&, const PrologueOutputs<float>&, Stream);
template void prologue_forward(const PrologueParams<BFloat16>&, const PrologueOutputs<BFloat16>&,
                               Stream);

}  // namespace tempera::kernels::cuda
