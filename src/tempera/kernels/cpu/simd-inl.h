// Elementary functions on vectors of float, and loads and stores of either storage type.
#if defined(TEMPERA_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_SIMD_INL_H_
#undef TEMPERA_KERNELS_CPU_SIMD_INL_H_
#else
#define TEMPERA_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::ScalableTag<int32_t>;
using U32 = hn::ScalableTag<uint32_t>;
using Vec = hn::Vec<F32>;
using Flags = hn::Mask<F32>;

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504088896341F;

HWY_INLINE Vec set(float x) { return hn::Set(F32(), x); }
HWY_INLINE Vec load(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE void store(Vec x, float* p) { hn::StoreU(x, F32(), p); }

HWY_INLINE Vec load(const BFloat16* p) {
  const hn::Rebind<uint16_t, F32> half;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

HWY_INLINE Vec load(const int8_t* p) {
  const hn::Rebind<int8_t, F32> quarter;
  return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(quarter, p)));
}

// Rounds to nearest, ties to even; a NaN stays one.
HWY_INLINE void store(Vec x, BFloat16* p) {
  const hn::Rebind<uint16_t, F32> half;
  const auto bits = hn::BitCast(U32(), x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(U32(), 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(U32(), 0x400000));
  const auto nan = hn::RebindMask(U32(), hn::IsNaN(x));
  const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(I32(), high)), half, reinterpret_cast<uint16_t*>(p));
}

// Whole numbers, cut to the range: to nearest, ties to even.
HWY_INLINE void store(Vec x, int8_t* p) {
  const hn::Rebind<int8_t, F32> quarter;
  hn::StoreU(hn::DemoteTo(quarter, hn::NearestInt(x)), quarter, p);
}

HWY_INLINE float to_float(float x) { return x; }
HWY_INLINE float to_float(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}
HWY_INLINE void from_float(float x, float* p) { *p = x; }
HWY_INLINE void from_float(float x, BFloat16* p) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = x != x ? bits | 0x400000U : bits + 0x7FFFU + ((bits >> 16) & 1U);
  p->bits = static_cast<uint16_t>(rounded >> 16);
}

HWY_INLINE float sum_lanes(Vec x) { return hn::GetLane(hn::SumOfLanes(F32(), x)); }
HWY_INLINE float max_lanes(Vec x) { return hn::GetLane(hn::MaxOfLanes(F32(), x)); }

// 2^y for y <= 126; below -126 exactly 0, also for -inf. Relative error 9.2e-8: 2^r - 1 = r P(r) on
// [-1/2, 1/2] with a minimax P, so that 2^0 is exactly 1.
HWY_INLINE Vec exp2(Vec y) {
  const Vec magic = set(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const Vec shifted = hn::Add(y, magic);
  const Vec r = hn::Sub(y, hn::Sub(shifted, magic));
  Vec p = set(1.326472712e-03F);
  p = hn::MulAdd(p, r, set(9.671512645e-03F));
  p = hn::MulAdd(p, r, set(5.550733743e-02F));
  p = hn::MulAdd(p, r, set(2.402224209e-01F));
  p = hn::MulAdd(p, r, set(6.931469776e-01F));
  p = hn::MulAdd(p, r, set(1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(I32(), shifted));
  const Vec power = hn::BitCast(F32(), hn::Add(hn::BitCast(I32(), p), exponent));
  return hn::IfThenZeroElse(hn::Lt(y, set(-126.0F)), power);  // a NaN passes
}

// The caller subtracts first: the difference is small where the result matters, and so is its
// rounding.
HWY_INLINE Vec exp(Vec x) { return exp2(hn::Mul(x, set(kLog2E))); }

// Near 0 an odd polynomial, beyond it 1 - 2 / (e^2x + 1): relative error under 2e-7 everywhere.
HWY_INLINE Vec tanh(Vec x) {
  const Vec a = hn::Abs(x);
  const Vec x2 = hn::Mul(x, x);
  Vec p = set(-5.528633651e-03F);
  p = hn::MulAdd(p, x2, set(2.048331610e-02F));
  p = hn::MulAdd(p, x2, set(-5.369296805e-02F));
  p = hn::MulAdd(p, x2, set(1.333089976e-01F));
  p = hn::MulAdd(p, x2, set(-3.333326288e-01F));
  const Vec near = hn::MulAdd(hn::Mul(p, x2), x, x);
  const Vec e = exp2(hn::Mul(hn::Min(a, set(20.0F)), set(2 * kLog2E)));
  const Vec far = hn::Sub(set(1.0F), hn::Div(set(2.0F), hn::Add(e, set(1.0F))));
  // A NaN, which Min may drop, takes the polynomial.
  return hn::IfThenElse(hn::Ge(a, set(0.65F)), hn::CopySignToAbs(far, x), near);
}

// The normal distribution function and, at no further cost, its density: Abramowitz and
// Stegun 7.1.26, absolute error under 1.5e-7.
struct Normal {
  Vec cdf;
  Vec density;
};

HWY_INLINE Normal normal(Vec x) {
  const Vec a = hn::Abs(x);
  const Vec e = exp2(hn::Mul(hn::Mul(x, x), set(-0.5F * kLog2E)));
  const Vec t =
      hn::Div(set(1.0F), hn::MulAdd(a, set(0.3275911F * 0.70710678118654752F), set(1.0F)));
  Vec p = set(1.061405429F);
  p = hn::MulAdd(p, t, set(-1.453152027F));
  p = hn::MulAdd(p, t, set(1.421413741F));
  p = hn::MulAdd(p, t, set(-0.284496736F));
  p = hn::MulAdd(p, t, set(0.254829592F));
  const Vec tail = hn::Mul(hn::Mul(hn::Mul(p, t), e), set(0.5F));
  const Vec cdf = hn::IfThenElse(hn::Lt(x, set(0.0F)), tail, hn::Sub(set(1.0F), tail));
  return {cdf, hn::Mul(e, set(0.39894228040143268F))};
}

HWY_INLINE Vec gelu(Vec x) { return hn::Mul(x, normal(x).cdf); }

// All ones where key `first + lane` keeps its probability.
HWY_INLINE Flags kept(DropoutRow row, uint32_t first, uint32_t threshold) {
  const U32 d;
  const auto key = hn::Add(hn::Iota(d, 0), hn::Set(d, first));
  auto x = hn::Add(hn::Mul(key, hn::Set(d, kDropoutStep)), hn::Set(d, row.add));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, kDropoutMul0));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, kDropoutMul1));
  x = hn::Xor(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, row.flip));
  return hn::RebindMask(F32(), hn::Not(hn::Lt(x, hn::Set(d, threshold))));
}

// Lanes whose column is inside [begin, end), for a vector that starts at `column`.
HWY_INLINE Flags inside(int64_t column, int64_t begin, int64_t end) {
  const I32 d;
  const auto at = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<int32_t>(column)));
  const auto before = hn::Set(d, static_cast<int32_t>(begin) - 1);
  const auto to = hn::Set(d, static_cast<int32_t>(end));
  return hn::RebindMask(F32(), hn::And(hn::Gt(at, before), hn::Lt(at, to)));
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
