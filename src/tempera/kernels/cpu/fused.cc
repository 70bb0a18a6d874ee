#include "tempera/kernels/fused.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/fused.cc"
#include "tempera/kernels/cpu/targets.h"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/fused-inl.h"
#include "tempera/kernels/cpu/fused_table.h"
#include "tempera/kernels/cpu/isa.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

template <class T>
struct Fused {
  static void norm_forward(const NormParams<T>& p, const NormOutputs<T>& out, Parallel& parallel) {
    RowTasks::of(p.rows, p.size).run(parallel, [&](int64_t row) { norm_row(p, out, row); });
  }

  static void norm_backward(const NormParams<T>& p, const NormGradients<T>& g, Parallel& parallel,
                            float* workspace) {
    const int64_t padded = round_up(p.size, kAlign);
    const int64_t share = (p.rows + kNormParts - 1) / kNormParts;
    parallel.run(kNormParts, [&](int64_t part, int) {
      float* sums = workspace + part * 2 * padded;
      std::fill_n(sums, 2 * padded, 0.0F);
      for (int64_t row = part * share; row < std::min(p.rows, (part + 1) * share); ++row)
        norm_backward_row(p, g, row, sums, sums + padded);
    });
    for (float* to : {g.d_gain, g.d_bias}) {
      if (!to) continue;
      std::fill_n(to, p.size, 0.0F);
      for (int64_t part = 0; part < kNormParts; ++part) {
        const float* sums = workspace + (part * 2 + (to == g.d_bias ? 1 : 0)) * padded;
        for (int64_t c = 0; c < p.size; ++c) to[c] += sums[c];
      }
    }
  }

  static void swiglu_forward(const SwigluParams<T>& p, T* y, Parallel& parallel) {
    RowTasks::of(p.rows, 2 * p.size).run(parallel, [&](int64_t row) {
      swiglu_row(p.size, p.gate_up + row * 2 * p.size, y + row * p.size);
    });
  }

  static void swiglu_backward(const SwigluParams<T>& p, const T* d_y, T* d_gate_up,
                              Parallel& parallel) {
    RowTasks::of(p.rows, 2 * p.size).run(parallel, [&](int64_t row) {
      swiglu_backward_row(p.size, p.gate_up + row * 2 * p.size, d_y + row * p.size,
                          d_gate_up + row * 2 * p.size);
    });
  }

  static void rotary(const RotaryParams<T>& p, Parallel& parallel) {
    RowTasks::of(p.batch * p.rows, p.heads * p.size).run(parallel, [&](int64_t row) {
      for (int64_t h = 0; h < p.heads; ++h) rotary_row(p, row / p.rows, h, row % p.rows);
    });
  }

  static void quantize(const QuantizeParams<T>& p, Parallel& parallel) {
    RowTasks::of(p.batch * p.rows, p.heads * p.size).run(parallel, [&](int64_t row) {
      for (int64_t h = 0; h < p.heads; ++h) quantize_row(p, row / p.rows, h, row % p.rows);
    });
  }

  static void cross_entropy(const CrossEntropyParams<T>& p, Parallel& parallel) {
    RowTasks::of(p.rows, p.classes).run(parallel, [&](int64_t row) { cross_entropy_row(p, row); });
  }
};

// The functions of this target, as Highway's dispatch wants them: behind plain functions.
template <class T>
FusedTable<T> table() {
  using F = Fused<T>;
  return {&F::norm_forward, &F::norm_backward, &F::swiglu_forward, &F::swiglu_backward,
          &F::rotary,       &F::quantize,      &F::cross_entropy};
}
FusedTable<float> table_float() { return table<float>(); }
FusedTable<BFloat16> table_bfloat16() { return table<BFloat16>(); }

void adamw_step(const AdamWParams& p, Parallel& parallel) {
  constexpr int64_t kShare = 65536;
  parallel.run((p.count + kShare - 1) / kShare, [&](int64_t task, int) {
    adamw_range(p, task * kShare, std::min(p.count, (task + 1) * kShare));
  });
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(table_float);
HWY_EXPORT(table_bfloat16);
HWY_EXPORT(adamw_step);

namespace {

template <class T>
FusedTable<T> fused() {
  select_isa();
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(table_float)();
  } else {
    return HWY_DYNAMIC_DISPATCH(table_bfloat16)();
  }
}

}  // namespace
}  // namespace cpu

template <class T>
void norm_forward(const NormParams<T>& params, const NormOutputs<T>& outputs, Parallel& parallel) {
  cpu::fused<T>().norm_forward(params, outputs, parallel);
}

int64_t norm_backward_workspace(int64_t size) {
  return cpu::kNormParts * 2 * cpu::round_up(size, cpu::kAlign);
}

template <class T>
void norm_backward(const NormParams<T>& params, const NormGradients<T>& gradients,
                   Parallel& parallel, float* workspace) {
  cpu::fused<T>().norm_backward(params, gradients, parallel, workspace);
}

template <class T>
void swiglu_forward(const SwigluParams<T>& params, T* y, Parallel& parallel) {
  cpu::fused<T>().swiglu_forward(params, y, parallel);
}

template <class T>
void swiglu_backward(const SwigluParams<T>& params, const T* d_y, T* d_gate_up,
                     Parallel& parallel) {
  cpu::fused<T>().swiglu_backward(params, d_y, d_gate_up, parallel);
}

template <class T>
void rotary(const RotaryParams<T>& params, Parallel& parallel) {
  cpu::fused<T>().rotary(params, parallel);
}

template <class T>
void quantize(const QuantizeParams<T>& params, Parallel& parallel) {
  cpu::fused<T>().quantize(params, parallel);
}

template <class T>
void cross_entropy(const CrossEntropyParams<T>& params, Parallel& parallel) {
  cpu::fused<T>().cross_entropy(params, parallel);
}

void adamw(const AdamWParams& params, Parallel& parallel) {
  cpu::select_isa();
  HWY_DYNAMIC_DISPATCH(cpu::adamw_step)(params, parallel);
}

#define TEMPERA_INSTANTIATE(T)                                                                   \
  template void norm_forward(const NormParams<T>&, const NormOutputs<T>&, Parallel&);            \
  template void norm_backward(const NormParams<T>&, const NormGradients<T>&, Parallel&, float*); \
  template void swiglu_forward(const SwigluParams<T>&, T*, Parallel&);                           \
  template void swiglu_backward(const SwigluParams<T>&, const T*, T*, Parallel&);                \
  template void rotary(const RotaryParams<T>&, Parallel&);                                       \
  template void quantize(const QuantizeParams<T>&, Parallel&);                                   \
  template void cross_entropy(const CrossEntropyParams<T>&, Parallel&)
TEMPERA_INSTANTIATE(float);
TEMPERA_INSTANTIATE(BFloat16);
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels
#endif  // HWY_ONCE
