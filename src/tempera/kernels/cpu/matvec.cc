#include "tempera/kernels/matvec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/matvec.cc"
#include "tempera/kernels/cpu/targets.h"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/isa.h"
#include "tempera/kernels/cpu/matvec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Bytes of the weight in a task: they stay in the cache of a core while further rows use them, and
// there are enough tasks that a worker which is held up does not hold up all.
inline constexpr int64_t kTaskBytes = 64 << 10;

template <class X, class W>
void multiply(const MatvecParams<X, W>& p, Parallel& parallel) {
  const int64_t row_bytes =
      std::max<int64_t>(p.inputs * static_cast<int64_t>(sizeof(W)), sizeof(W));
  const int64_t share = std::max<int64_t>(kTaskBytes / row_bytes, 1);
  parallel.run((p.outputs + share - 1) / share, [&](int64_t task, int) {
    const int64_t begin = task * share, end = std::min(p.outputs, begin + share);
    for (int64_t first = 0; first < p.rows; first += kMatvecRows)
      matvec_outputs<kMatvecRows>(p, first, p.rows - first, begin, end);
  });
}

// As Highway's dispatch wants them: plain functions.
void matvec_ff(const MatvecParams<float, float>& p, Parallel& parallel) { multiply(p, parallel); }
void matvec_fb(const MatvecParams<float, BFloat16>& p, Parallel& parallel) {
  multiply(p, parallel);
}
void matvec_bf(const MatvecParams<BFloat16, float>& p, Parallel& parallel) {
  multiply(p, parallel);
}
void matvec_bb(const MatvecParams<BFloat16, BFloat16>& p, Parallel& parallel) {
  multiply(p, parallel);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(matvec_ff);
HWY_EXPORT(matvec_fb);
HWY_EXPORT(matvec_bf);
HWY_EXPORT(matvec_bb);
}  // namespace cpu

#define TEMPERA_MATVEC(X, W, name)                                    \
  template <>                                                         \
  void matvec(const MatvecParams<X, W>& params, Parallel& parallel) { \
    cpu::select_isa();                                                \
    HWY_DYNAMIC_DISPATCH(cpu::name)(params, parallel);                \
  }
TEMPERA_MATVEC(float, float, matvec_ff)
TEMPERA_MATVEC(float, BFloat16, matvec_fb)
TEMPERA_MATVEC(BFloat16, float, matvec_bf)
TEMPERA_MATVEC(BFloat16, BFloat16, matvec_bb)
#undef TEMPERA_MATVEC

}  // namespace tempera::kernels
#endif  // HWY_ONCE
