// From scores to logits and back, a row of a tile at a time. Each feature that a call may have is a
// small struct made from the call and the row, the same for forward, backward and decode.
#if defined(TEMPERA_KERNELS_CPU_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_LOGITS_INL_H_
#undef TEMPERA_KERNELS_CPU_LOGITS_INL_H_
#else
#define TEMPERA_KERNELS_CPU_LOGITS_INL_H_
#endif

#include "tempera/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Columns count from the first key of a block. Reads those of the span only: the bias may end
// there.
struct Bias {
  // Elsewhere MaskedLoad reads the lanes that it masks off.
  static constexpr bool kMaskedLoadIsSafe =
      HWY_TARGET == HWY_SCALAR || (HWY_ARCH_X86 != 0 && HWY_TARGET <= HWY_AVX2);
  const float* row;
  KeyRange span;

  HWY_INLINE Vec operator()(Vec z, int64_t column) const {
    if (!row) return z;
    if (column >= span.begin && column + kLanes <= span.end) return hn::Add(z, load(row + column));
    if constexpr (kMaskedLoadIsSafe)
      return hn::Add(z, hn::MaskedLoad(inside(column, span.begin, span.end), F32(), row + column));
    float part[kLanes] = {};
    for (int64_t c = std::max(column, span.begin); c < std::min(column + kLanes, span.end); ++c)
      part[c - column] = row[c];
    return hn::Add(z, load(part));
  }
};

struct Cap {
  float cap;

  HWY_INLINE Vec operator()(Vec z) const {
    return cap > 0 ? hn::Mul(set(cap), tanh(hn::Mul(z, set(1 / cap)))) : z;
  }
  // d times the slope where the result was z.
  HWY_INLINE Vec backward(Vec d, Vec z) const {
    if (cap <= 0) return d;
    const Vec t = hn::Mul(z, set(1 / cap));
    return hn::Mul(d, hn::NegMulAdd(t, t, set(1.0F)));
  }
};

struct Post {
  bool given;
  float factor;

  HWY_INLINE Vec operator()(Vec z) const { return given ? hn::Mul(z, set(factor)) : z; }
};

// What turns a row's scores into logits.
struct LogitRow {
  Bias bias;
  Cap cap;
  Post post;

  template <class T, class C>
  LogitRow(const AttentionParams<T, C>& p, int64_t b, int64_t h, int64_t i, int64_t key,
           KeyRange seen)
      : bias{p.bias ? p.bias.at(b, h, i) + key : nullptr, seen},
        cap{p.cap},
        post{static_cast<bool>(p.post), p.post ? *p.post.at(b, h, i) : 1.0F} {}

  template <class T, class C>
  static bool plain(const AttentionParams<T, C>& p) {
    return !p.bias && p.cap <= 0 && !p.post;
  }

  // The logit before the post multiplier.
  HWY_INLINE Vec capped(Vec score, int64_t column) const { return cap(bias(score, column)); }
  // d is the gradient of the logit, z what capped() gave; returns the gradient of the score.
  HWY_INLINE Vec backward(Vec d, Vec z) const { return cap.backward(post(d), z); }
};

// What the weights of a row are multiplied by: 0, or the inverse of how many are kept.
struct Dropout {
  bool given;
  DropoutRow row;
  uint32_t threshold;
  float keep;

  template <class T, class C>
  Dropout(const AttentionParams<T, C>& p, int64_t b, int64_t h, int64_t i)
      : given(p.dropout > 0),
        row(dropout_row(p.seed,
                        static_cast<uint64_t>((b * p.shape.q_heads + h) * p.shape.q_rows + i))),
        threshold(dropout_threshold(static_cast<double>(p.dropout))),
        keep(1 / (1 - p.dropout)) {}

  HWY_INLINE Vec operator()(int64_t key) const {
    if (!given) return set(1.0F);
    return hn::IfThenElseZero(kept(row, static_cast<uint32_t>(key), threshold), set(keep));
  }
};

// Calls body(column, mask) over the vectors of [from, to); `whole` bodies get the vectors that lie
// inside the span, so that only the edges pay for a mask.
template <class Whole, class Edge>
HWY_INLINE void for_columns(int64_t from, int64_t to, KeyRange span, const Whole& whole,
                            const Edge& edge) {
  const int64_t first = std::min(to, round_up(span.begin, kLanes));
  const int64_t last = span.end / kLanes * kLanes;
  int64_t c = from;
  for (; c < std::min(first, to); c += kLanes) edge(c);
  for (; c < last; c += kLanes) whole(c);
  for (; c < to; c += kLanes) edge(c);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
