#include "tempera/kernels/cpu/decode_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/decode.cc"
#include "tempera/kernels/cpu/targets.h"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/decode-inl.h"
#include "tempera/kernels/cpu/isa.h"
#include "tempera/kernels/validate.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

template <class T, class C>
void run_decode(const DecodeParams<T, C>& params, const AttentionOutputs<T>& outputs,
                const DecodePlan& plan, float* head_max, Parallel& parallel) {
  const Shape& s = params.attention.shape;
  parallel.run(plan.tasks(), [&](int64_t task, int worker) {
    const DecodeScratch scratch = plan.worker(worker);
    const int64_t unit = task / plan.splits();
    const int64_t b = unit / s.kv_heads;
    DecodeTask<T, C>(params, outputs, scratch)
        .run(b, unit % s.kv_heads, plan.keys(task % plan.splits(), params.lengths[b]),
             plan.part(task));
  });
  parallel.run(s.batch * s.kv_heads, [&](int64_t unit, int worker) {
    const DecodeScratch scratch = plan.worker(worker);
    DecodeTask<T, C>(params, outputs, scratch)
        .merge(unit / s.kv_heads, unit % s.kv_heads, plan, head_max);
  });
}

// The functions of this target, as Highway's dispatch wants them: behind plain functions.
DecodeTable decode_table() {
  return {&run_decode<float, float>, &run_decode<float, BFloat16>, &run_decode<float, int8_t>,
          &run_decode<BFloat16, BFloat16>, &run_decode<BFloat16, int8_t>};
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(decode_table);

namespace {

// The plan and, behind it, the largest logit of every (batch, head).
struct DecodeWorkspace {
  DecodePlan plan;
  float* head_max;

  DecodeWorkspace(Arena& arena, const Shape& s, int workers, bool paged)
      : plan(arena, s, workers, paged), head_max(arena.floats(s.batch * s.q_heads)) {}
};

bool is_empty(const Shape& s) { return s.batch == 0 || s.q_heads == 0 || s.q_rows == 0; }

}  // namespace
}  // namespace cpu

template <class T, class C>
size_t decode_workspace(const DecodeParams<T, C>& params, int workers) {
  if (cpu::is_empty(params.attention.shape)) return 0;
  cpu::Arena arena;
  cpu::DecodeWorkspace(arena, params.attention.shape, workers, params.block_table != nullptr);
  return arena.used();
}

template <class T, class C>
void decode(const DecodeParams<T, C>& params, const AttentionOutputs<T>& outputs,
            Parallel& parallel, void* workspace) {
  validate(params, outputs);
  cpu::select_isa();
  const Shape& shape = params.attention.shape;
  if (cpu::is_empty(shape)) {
    if (outputs.head_max)
      std::fill_n(outputs.head_max, shape.q_heads, -std::numeric_limits<float>::infinity());
    return;
  }
  cpu::Arena arena(workspace);
  const cpu::DecodeWorkspace memory(arena, shape, parallel.workers(),
                                    params.block_table != nullptr);
  std::get<cpu::Decode<T, C>>(HWY_DYNAMIC_DISPATCH(cpu::decode_table)())(
      params, outputs, memory.plan, memory.head_max, parallel);
  if (!outputs.head_max) return;
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    outputs.head_max[h] = memory.head_max[h];
    for (int64_t b = 1; b < shape.batch; ++b)
      outputs.head_max[h] = std::max(outputs.head_max[h], memory.head_max[b * shape.q_heads + h]);
  }
}

#define TEMPERA_INSTANTIATE(T, C)                                   \
  template size_t decode_workspace(const DecodeParams<T, C>&, int); \
  template void decode(const DecodeParams<T, C>&, const AttentionOutputs<T>&, Parallel&, void*)
TEMPERA_INSTANTIATE(float, float);
TEMPERA_INSTANTIATE(float, BFloat16);
TEMPERA_INSTANTIATE(float, int8_t);
TEMPERA_INSTANTIATE(BFloat16, BFloat16);
TEMPERA_INSTANTIATE(BFloat16, int8_t);
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels
#endif  // HWY_ONCE
