// Small matrix products on tiles that stay in the cache: C (+)= A B with A broadcast element by
// element (any strides) and B read in whole vectors. One micro-kernel serves all seven products of
// an attention step.
#if defined(TEMPERA_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_GEMM_INL_H_
#undef TEMPERA_KERNELS_CPU_GEMM_INL_H_
#else
#define TEMPERA_KERNELS_CPU_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "tempera/kernels/cpu/simd-inl.h"
#include "tempera/kernels/cpu/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// AVX-512 has 32 registers for 6 x 4 accumulators; the others have 16 for 6 x 2.
inline constexpr int kMaxVectors = kLanes >= 16 ? 4 : 2;

struct Product {
  const float* a;
  int64_t a_row;
  int64_t a_depth;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
};

template <int kRows, int kVectors>
HWY_NOINLINE void micro_kernel(const Product& p, int64_t depth, bool accumulate) {
  Vec sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      sum[i][v] = accumulate ? load(p.c + i * p.c_row + v * kLanes) : hn::Zero(F32());
  const float* a = p.a;
  const float* b = p.b;
  for (int64_t k = 0; k < depth; ++k, a += p.a_depth, b += p.b_row) {
    Vec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const Vec x = set(a[i * p.a_row]);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, row[v], sum[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) store(sum[i][v], p.c + i * p.c_row + v * kLanes);
}

template <int kRows>
HWY_INLINE void dispatch_vectors(int vectors, const Product& p, int64_t depth, bool accumulate) {
  if constexpr (kMaxVectors == 4) {
    if (vectors == 4) return micro_kernel<kRows, 4>(p, depth, accumulate);
    if (vectors == 3) return micro_kernel<kRows, 3>(p, depth, accumulate);
  }
  if (vectors == 2) return micro_kernel<kRows, 2>(p, depth, accumulate);
  return micro_kernel<kRows, 1>(p, depth, accumulate);
}

HWY_INLINE void dispatch(int rows, int vectors, const Product& p, int64_t depth, bool accumulate) {
  switch (rows) {
    case 6:
      return dispatch_vectors<6>(vectors, p, depth, accumulate);
    case 4:
      return dispatch_vectors<4>(vectors, p, depth, accumulate);
    case 2:
      return dispatch_vectors<2>(vectors, p, depth, accumulate);
    default:
      return dispatch_vectors<1>(vectors, p, depth, accumulate);
  }
}

// C[rows of the strip][columns of the strip] = A B with the strip's span as *columns*: scores, of
// which a row needs the visible keys only. B is in panels of kPanel columns, each with `depth`
// rows.
HWY_INLINE void multiply_columns(const Strips& strips, const Product& p, int64_t depth) {
  constexpr int64_t kStep = kMaxVectors * kLanes;
  for (int64_t panel = strips.begin() / kPanel * kPanel; panel < strips.end(); panel += kPanel) {
    const float* b = p.b + panel * depth;
    for (const Strip& strip : strips.list()) {
      const int64_t from = std::max<int64_t>(panel, strip.begin / kLanes * kLanes);
      const int64_t to = std::min<int64_t>(panel + kPanel, strip.end);
      for (int64_t column = from; column < to; column += kStep) {
        const int vectors =
            static_cast<int>(std::min<int64_t>(kMaxVectors, (to - column + kLanes - 1) / kLanes));
        dispatch(strip.rows, vectors,
                 {p.a + strip.row * p.a_row, p.a_row, p.a_depth, b + (column - panel), kPanel,
                  p.c + strip.row * p.c_row + column, p.c_row},
                 depth, /*accumulate=*/false);
      }
    }
  }
}

// C[rows of the strip][all columns] += A B with the strip's span as the *depth*: the sum runs over
// what is visible.
HWY_INLINE void accumulate_rows(const Strips& strips, const Product& p, int64_t columns) {
  constexpr int64_t kStep = kMaxVectors * kLanes;
  for (int64_t column = 0; column < columns; column += kStep) {
    const int vectors =
        static_cast<int>(std::min<int64_t>(kMaxVectors, (columns - column + kLanes - 1) / kLanes));
    for (const Strip& strip : strips.list())
      dispatch(strip.rows, vectors,
               {p.a + strip.row * p.a_row + strip.begin * p.a_depth, p.a_row, p.a_depth,
                p.b + strip.begin * p.b_row + column, p.b_row, p.c + strip.row * p.c_row + column,
                p.c_row},
               strip.end - strip.begin, /*accumulate=*/true);
  }
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
