// Few rows times a matrix that lies in memory.
#if defined(TEMPERA_KERNELS_CPU_MATVEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_MATVEC_INL_H_
#undef TEMPERA_KERNELS_CPU_MATVEC_INL_H_
#else
#define TEMPERA_KERNELS_CPU_MATVEC_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "tempera/kernels/cpu/rows-inl.h"
#include "tempera/kernels/matvec.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Rows of x that share one load of the weight.
inline constexpr int kMatvecRows = 8;

// Outputs at a time. One or two rows of x leave nothing to share, and a single stream through the
// weight is the quickest; more rows share the loads of x among as many sums as there are registers.
template <int kRows>
inline constexpr int kMatvecOutputs =
    kRows <= 2 ? 1 : std::clamp((HWY_TARGET <= HWY_AVX3 ? 24 : 12) / kRows, 1, 4);

// Outputs [output, output + kOutputs) of rows [first, first + kRows). Every result is one sum over
// the vectors of its two rows in order, so that it does not depend on what is computed beside it.
template <int kRows, int kOutputs, class X, class W>
HWY_INLINE void matvec_tile(const MatvecParams<X, W>& p, int64_t first, int64_t output) {
  const W* w = p.weight + output * p.weight_stride;
  const X* x = p.x + first * p.x_stride;
  Vec sum[kOutputs][kRows];
  for (auto& sums : sum)
    for (Vec& s : sums) s = hn::Zero(F32());
  const auto add = [&](int64_t c, const auto& load_at) HWY_ATTR {
    Vec weight[kOutputs];
    for (int o = 0; o < kOutputs; ++o) weight[o] = load_at(w + o * p.weight_stride + c);
    for (int r = 0; r < kRows; ++r) {
      const Vec in = load_at(x + r * p.x_stride + c);
      for (int o = 0; o < kOutputs; ++o) sum[o][r] = hn::MulAdd(weight[o], in, sum[o][r]);
    }
  };
  // Rows of the weight are too short for the processor to guess what comes: half a page ahead, or
  // where several rows are read at once, the ones behind them. Behind the weight's end nothing
  // happens.
  const int64_t ahead =
      kOutputs == 1 ? 2048 / static_cast<int64_t>(sizeof(W)) : kOutputs * p.weight_stride;
  int64_t c = 0;
  for (; c + kLanes <= p.inputs; c += kLanes) {
    for (int o = 0; o < kOutputs; ++o) hwy::Prefetch(w + o * p.weight_stride + c + ahead);
    add(c, [](const auto* at) HWY_ATTR { return load(at); });
  }
  if (c < p.inputs) add(c, [&](const auto* at) HWY_ATTR { return load_some(at, p.inputs - c); });
  for (int o = 0; o < kOutputs; ++o) {
    const float bias = p.bias ? to_float(p.bias[output + o]) : 0.0F;
    for (int r = 0; r < kRows; ++r)
      from_float(sum_lanes(sum[o][r]) + bias, p.y + (first + r) * p.y_stride + output + o);
  }
}

// Outputs [begin, end) of rows [first, first + count), or of the first kRows of them.
template <int kRows, class X, class W>
void matvec_outputs(const MatvecParams<X, W>& p, int64_t first, int64_t count, int64_t begin,
                    int64_t end) {
  if constexpr (kRows > 1) {
    if (count < kRows) return matvec_outputs<kRows - 1>(p, first, count, begin, end);
  }
  constexpr int kOutputs = kMatvecOutputs<kRows>;
  int64_t output = begin;
  for (; output + kOutputs <= end; output += kOutputs)
    matvec_tile<kRows, kOutputs>(p, first, output);
  for (; output < end; ++output) matvec_tile<kRows, 1>(p, first, output);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
