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
  static void norm_forward(const NormParams<T>& p, T* h, T* y, float* mean, float* rstd,
                           Parallel& parallel) {
    RowTasks::of(p.rows, p.size).run(parallel, [&](int64_t row) {
      norm_row(p, row, h, y, mean, rstd);
    });
  }

  static void norm_backward(const NormParams<T>& p, const float* mean, const float* rstd,
                            const T* d_y, const T* d_h, T* d_x, float* d_gain, float* d_bias,
                            Parallel& parallel, float* workspace) {
    const int64_t padded = round_up(p.size, kAlign);
    const int64_t share = (p.rows + kNormParts - 1) / kNormParts;
    parallel.run(kNormParts, [&](int64_t part, int) {
      float* sums = workspace + part * 2 * padded;
      std::fill_n(sums, 2 * padded, 0.0F);
      for (int64_t row = part * share; row < std::min(p.rows, (part + 1) * share); ++row)
        norm_backward_row(p, row, p.centred ? mean[row] : 0.0F, rstd[row], d_y, d_h, d_x, sums,
                          sums + padded);
    });
    for (float* to : {d_gain, d_bias}) {
      if (!to) continue;
      std::fill_n(to, p.size, 0.0F);
      for (int64_t part = 0; part < kNormParts; ++part) {
        const float* sums = workspace + (part * 2 + (to == d_bias ? 1 : 0)) * padded;
        for (int64_t c = 0; c < p.size; ++c) to[c] += sums[c];
      }
    }
  }

  static void swiglu_forward(int64_t rows, int64_t size, const T* gate_up, T* y,
                             Parallel& parallel) {
    RowTasks::of(rows, 2 * size).run(parallel, [&](int64_t row) {
      swiglu_row(size, gate_up + row * 2 * size, y + row * size);
    });
  }

  static void swiglu_backward(int64_t rows, int64_t size, const T* gate_up, const T* d_y,
                              T* d_gate_up, Parallel& parallel) {
    RowTasks::of(rows, 2 * size).run(parallel, [&](int64_t row) {
      swiglu_backward_row(size, gate_up + row * 2 * size, d_y + row * size,
                          d_gate_up + row * 2 * size);
    });
  }

  static void rotary(const RotaryParams<T>& p, Parallel& parallel) {
    RowTasks::of(p.batch * p.rows, p.heads * p.size).run(parallel, [&](int64_t row) {
      for (int64_t h = 0; h < p.heads; ++h) rotary_row(p, row / p.rows, h, row % p.rows);
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
  return {&F::norm_forward,    &F::norm_backward, &F::swiglu_forward,
          &F::swiglu_backward, &F::rotary,        &F::cross_entropy};
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
void norm_forward(const NormParams<T>& params, T* h, T* y, float* mean, float* rstd,
                  Parallel& parallel) {
  cpu::fused<T>().norm_forward(params, h, y, mean, rstd, parallel);
}

int64_t norm_backward_workspace(int64_t size) {
  return cpu::kNormParts * 2 * cpu::round_up(size, cpu::kAlign);
}

template <class T>
void norm_backward(const NormParams<T>& params, const float* mean, const float* rstd, const T* d_y,
                   const T* d_h, T* d_x, float* d_gain, float* d_bias, Parallel& parallel,
                   float* workspace) {
  cpu::fused<T>().norm_backward(params, mean, rstd, d_y, d_h, d_x, d_gain, d_bias, parallel,
                                workspace);
}

template <class T>
void swiglu_forward(int64_t rows, int64_t size, const T* gate_up, T* y, Parallel& parallel) {
  cpu::fused<T>().swiglu_forward(rows, size, gate_up, y, parallel);
}

template <class T>
void swiglu_backward(int64_t rows, int64_t size, const T* gate_up, const T* d_y, T* d_gate_up,
                     Parallel& parallel) {
  cpu::fused<T>().swiglu_backward(rows, size, gate_up, d_y, d_gate_up, parallel);
}

template <class T>
void rotary(const RotaryParams<T>& params, Parallel& parallel) {
  cpu::fused<T>().rotary(params, parallel);
}

template <class T>
void cross_entropy(const CrossEntropyParams<T>& params, Parallel& parallel) {
  cpu::fused<T>().cross_entropy(params, parallel);
}

void adamw(const AdamWParams& params, Parallel& parallel) {
  cpu::select_isa();
  HWY_DYNAMIC_DISPATCH(cpu::adamw_step)(params, parallel);
}

#define TEMPERA_INSTANTIATE(T)                                                            \
  template void norm_forward(const NormParams<T>&, T*, T*, float*, float*, Parallel&);    \
  template void norm_backward(const NormParams<T>&, const float*, const float*, const T*, \
                              const T*, T*, float*, float*, Parallel&, float*);           \
  template void swiglu_forward(int64_t, int64_t, const T*, T*, Parallel&);                \
  template void swiglu_backward(int64_t, int64_t, const T*, const T*, T*, Parallel&);     \
  template void rotary(const RotaryParams<T>&, Parallel&);                                \
  template void cross_entropy(const CrossEntropyParams<T>&, Parallel&)
TEMPERA_INSTANTIATE(float);
TEMPERA_INSTANTIATE(BFloat16);
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels
#endif  // HWY_ONCE
