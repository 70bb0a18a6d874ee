#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/forward.cc"
#include "tempera/kernels/cpu/targets.h"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/forward-inl.h"
#include "tempera/kernels/cpu/isa.h"
#include "tempera/kernels/cpu/plan.h"
#include "tempera/kernels/validate.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE void forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
                        const ForwardPlan& plan, Parallel& parallel) {
  const Shape& shape = params.shape;
  const int64_t group = shape.q_heads / shape.kv_heads;
  parallel.run(plan.tasks(), [&](int64_t task, int worker) {
    const int64_t unit = task / plan.splits();
    float* head_max = plan.head_max(task);
    std::fill_n(head_max, group, -kInfinity);
    const ForwardScratch scratch = plan.worker(worker);
    ForwardTask<T>(params, outputs, scratch)
        .run(unit / shape.kv_heads, unit % shape.kv_heads, task % plan.splits(), plan.splits(),
             head_max);
  });
}

void forward_float(const AttentionParams<float>& params, const AttentionOutputs<float>& outputs,
                   const ForwardPlan& plan, Parallel& parallel) {
  forward(params, outputs, plan, parallel);
}
void forward_bfloat16(const AttentionParams<BFloat16>& params,
                      const AttentionOutputs<BFloat16>& outputs, const ForwardPlan& plan,
                      Parallel& parallel) {
  forward(params, outputs, plan, parallel);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(forward_float);
HWY_EXPORT(forward_bfloat16);

namespace {

bool is_empty(const Shape& s) { return s.batch == 0 || s.q_heads == 0 || s.q_rows == 0; }

template <class T>
void reduce_head_max(const Shape& shape, const ForwardPlan& plan, T* head_max) {
  const int64_t group = shape.q_heads / shape.kv_heads;
  std::fill_n(head_max, shape.q_heads, -std::numeric_limits<T>::infinity());
  for (int64_t task = 0; task < plan.tasks(); ++task) {
    const int64_t kv_head = task / plan.splits() % shape.kv_heads;
    for (int64_t h = 0; h < group; ++h) {
      T& to = head_max[kv_head * group + h];
      to = std::max(to, plan.head_max(task)[h]);
    }
  }
}

}  // namespace
}  // namespace cpu

template <class T>
size_t attention_forward_workspace(const AttentionParams<T>& params, int workers) {
  if (cpu::is_empty(params.shape)) return 0;
  cpu::Arena arena;
  cpu::ForwardPlan(arena, params.shape, workers);
  return arena.used();
}

template <class T>
void attention_forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
                       Parallel& parallel, void* workspace) {
  validate(params, outputs);
  cpu::select_isa();
  if (cpu::is_empty(params.shape)) {
    if (outputs.head_max)
      std::fill_n(outputs.head_max, params.shape.q_heads, -std::numeric_limits<float>::infinity());
    return;
  }
  cpu::Arena arena(workspace);
  const cpu::ForwardPlan plan(arena, params.shape, parallel.workers());
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(cpu::forward_float)(params, outputs, plan, parallel);
  } else {
    HWY_DYNAMIC_DISPATCH(cpu::forward_bfloat16)(params, outputs, plan, parallel);
  }
  if (outputs.head_max) cpu::reduce_head_max(params.shape, plan, outputs.head_max);
}

template size_t attention_forward_workspace(const AttentionParams<float>&, int);
template size_t attention_forward_workspace(const AttentionParams<BFloat16>&, int);
template void attention_forward(const AttentionParams<float>&, const AttentionOutputs<float>&,
                                Parallel&, void*);
template void attention_forward(const AttentionParams<BFloat16>&, const AttentionOutputs<BFloat16>&,
                                Parallel&, void*);

}  // namespace tempera::kernels
#endif  // HWY_ONCE
