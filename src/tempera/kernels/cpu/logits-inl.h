// From scores to logits, a row of a tile at a time: bias, cap and post multiplier, and their way
// back.
#if defined(TEMPERA_KERNELS_CPU_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_LOGITS_INL_H_
#undef TEMPERA_KERNELS_CPU_LOGITS_INL_H_
#else
#define TEMPERA_KERNELS_CPU_LOGITS_INL_H_
#endif

#include "tempera/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// What turns a row's scores into logits; columns count from the first key of the block.
struct LogitRow {
  const float* bias = nullptr;
  float cap = 0;
  float post = 1;
  bool has_post = false;
  KeyRange span;

  template <class T>
  LogitRow(const AttentionParams<T>& p, int64_t b, int64_t h, int64_t i, int64_t key, KeyRange seen)
      : bias(p.bias ? p.bias.at(b, h, i) + key : nullptr),
        cap(p.cap),
        post(p.post ? *p.post.at(b, h, i) : 1.0F),
        has_post(static_cast<bool>(p.post)),
        span(seen) {}

  template <class T>
  static bool plain(const AttentionParams<T>& p) {
    return !p.bias && p.cap <= 0 && !p.post;
  }

  // The logit before the post multiplier.
  HWY_INLINE Vec capped(Vec score, int64_t column) const {
    Vec z = score;
    if (bias) z = hn::Add(z, load_bias(column));
    if (cap > 0) z = hn::Mul(set(cap), tanh(hn::Mul(z, set(1 / cap))));
    return z;
  }
  HWY_INLINE Vec logit(Vec score, int64_t column) const {
    const Vec z = capped(score, column);
    return has_post ? hn::Mul(z, set(post)) : z;
  }
  // d is the gradient of the logit; returns the gradient of the score.
  HWY_INLINE Vec backward(Vec d, Vec z) const {
    if (has_post) d = hn::Mul(d, set(post));
    if (cap > 0) {
      const Vec t = hn::Mul(z, set(1 / cap));
      d = hn::Mul(d, hn::NegMulAdd(t, t, set(1.0F)));
    }
    return d;
  }

 private:
  // Reads the columns of the span only: the bias may end there.
  HWY_INLINE Vec load_bias(int64_t column) const {
    if (column >= span.begin && column + kLanes <= span.end) return load(bias + column);
    return hn::MaskedLoad(inside(column, span.begin, span.end), F32(), bias + column);
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

HWY_INLINE Vec keep_scale(const DropoutRow& row, int64_t key, uint32_t threshold, float scale) {
  return hn::IfThenElseZero(kept(row, static_cast<uint32_t>(key), threshold), set(scale));
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
