// The running softmax of a tile's rows: scores of a block in, unnormalised probabilities out, with
// the maximum, the sum and what else was asked for kept a row. Shared by the forward pass and by
// decoding.
#if defined(TEMPERA_KERNELS_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_SOFTMAX_INL_H_
#undef TEMPERA_KERNELS_CPU_SOFTMAX_INL_H_
#else
#define TEMPERA_KERNELS_CPU_SOFTMAX_INL_H_
#endif

#include "tempera/kernels/cpu/logits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Where a row of the tile stands in the whole.
struct RowPlace {
  int64_t batch;
  int64_t head;
  int64_t row;  // of the queries
};

template <class T, class C = T>
class SoftmaxRows {
 public:
  SoftmaxRows(const AttentionParams<T, C>& params, const AttentionOutputs<T>& outputs,
              const SoftmaxScratch& scratch)
      : p_(params),
        o_(outputs),
        w_(scratch),
        v_stride_(packed_stride(params.shape.v_size)),
        plain_(LogitRow::plain(params) && params.dropout <= 0) {}

  void start(int64_t rows) const {
    std::fill_n(w_.out, rows * v_stride_, 0.0F);
    std::fill_n(w_.max, rows, -kInfinity);
    std::fill_n(w_.sum, rows * kAlign, 0.0F);
    std::fill_n(w_.entropy, rows * kAlign, 0.0F);
  }

  // Columns [begin, end) of row r hold scores of the keys from `key` on; outside the span they
  // become 0.
  HWY_INLINE void block(const RowPlace& place, int64_t r, int64_t key, KeyRange columns,
                        KeyRange span) const {
    if (plain_ && o_.entropy) {
      plain_row</*entropy=*/true>(r, columns, span);
    } else if (plain_) {
      plain_row</*entropy=*/false>(r, columns, span);
    } else {
      general_row(place, r, key, columns, span);
    }
  }

  // Writes the outputs of row r.
  HWY_INLINE void finish(const RowPlace& place, int64_t r) const {
    const auto [b, h, i] = place;
    const float max = w_.max[r];
    const float sum = sum_lanes(load(w_.sum + r * kAlign));
    const bool sees = max > -kInfinity;
    const float lse = sees ? max + std::log(sum) : (max != max ? max : -kInfinity);
    float factor = sees ? 1 / sum : (max != max ? max : 0.0F);
    if (p_.sinks && sees) factor /= 1 + std::exp(p_.sinks[h] - lse);
    unpack_row(w_.out + r * v_stride_, p_.shape.v_size, factor, o_.out.at(b, h, i));
    if (o_.lse) *o_.lse.at(b, h, i) = lse;
    if (o_.max) *o_.max.at(b, h, i) = max;
    if (o_.entropy) {
      const float mean = sees ? sum_lanes(load(w_.entropy + r * kAlign)) / sum : 0.0F;
      *o_.entropy.at(b, h, i) = sees ? std::log(sum) - mean : 0.0F;
    }
  }

 private:
  HWY_INLINE static bool any_nan(Vec x) { return !hn::AllFalse(F32(), hn::IsNaN(x)); }

  HWY_INLINE static bool any_nan(const float* row, KeyRange columns) {
    for (int64_t c = columns.begin; c < columns.end; c += kLanes)
      if (any_nan(load(row + c))) return true;
    return false;
  }

  // Raises the row's maximum to that of the block, whose logits fill whole vectors of the row, and
  // scales what was summed before. False: nothing visible yet.
  HWY_INLINE bool raise_max(int64_t r, Vec block_max, KeyRange columns) const {
    const float old_max = w_.max[r];
    float new_max = any_nan(block_max) ? std::numeric_limits<float>::quiet_NaN()
                                       : std::max(old_max, max_lanes(block_max));
    // Max may drop a NaN, which the sum shows then: but not where there was nothing else.
    if (new_max == -kInfinity && any_nan(w_.scores + r * kScoreStride, columns))
      new_max = std::numeric_limits<float>::quiet_NaN();
    if (new_max == -kInfinity) return false;
    if (new_max == old_max) return true;
    w_.max[r] = new_max;
    if (old_max == -kInfinity) return true;
    const Vec factor = exp(set(old_max - new_max));
    float* sum = w_.sum + r * kAlign;
    if (o_.entropy) {
      float* entropy = w_.entropy + r * kAlign;
      const Vec moved = hn::MulAdd(load(sum), set(old_max - new_max), load(entropy));
      store(hn::Mul(moved, factor), entropy);
    }
    store(hn::Mul(load(sum), factor), sum);
    float* out = w_.out + r * v_stride_;
    for (int64_t c = 0; c < p_.shape.v_size; c += kLanes)
      store(hn::Mul(load(out + c), factor), out + c);
    return true;
  }

  // 0 * -inf is no number: a key without weight adds nothing.
  HWY_INLINE static Vec weighed(Vec p, Vec below) {
    return hn::IfThenElseZero(hn::Gt(p, hn::Zero(F32())), hn::Mul(p, below));
  }

  HWY_INLINE void clear_row(float* row, KeyRange columns) const {
    for (int64_t c = columns.begin / kLanes * kLanes; c < columns.end; c += kLanes)
      store(hn::Zero(F32()), row + c);
  }

  // Scores to unnormalised probabilities in place, with nothing between them but the mask.
  template <bool with_entropy>
  HWY_INLINE void plain_row(int64_t r, KeyRange columns, KeyRange span) const {
    float* row = w_.scores + r * kScoreStride;
    const int64_t from = columns.begin / kLanes * kLanes;
    Vec block_max = set(-kInfinity);
    for_columns(
        from, columns.end, span, [&](int64_t c) { block_max = hn::Max(block_max, load(row + c)); },
        [&](int64_t c) {
          const Vec z =
              hn::IfThenElse(inside(c, span.begin, span.end), load(row + c), set(-kInfinity));
          store(z, row + c);
          block_max = hn::Max(block_max, z);
        });
    if (!raise_max(r, block_max, {from, columns.end})) return clear_row(row, columns);
    const Vec max = set(w_.max[r]);
    Vec sum = load(w_.sum + r * kAlign);
    Vec entropy = with_entropy ? load(w_.entropy + r * kAlign) : hn::Zero(F32());
    for (int64_t c = from; c < columns.end; c += kLanes) {
      const Vec below = hn::Sub(load(row + c), max);
      const Vec p = exp(below);
      sum = hn::Add(sum, p);
      if (with_entropy) entropy = hn::Add(entropy, weighed(p, below));
      store(p, row + c);
    }
    store(sum, w_.sum + r * kAlign);
    if (with_entropy) store(entropy, w_.entropy + r * kAlign);
  }

  HWY_INLINE void general_row(const RowPlace& place, int64_t r, int64_t key, KeyRange columns,
                              KeyRange span) const {
    const auto [b, h, i] = place;
    float* row = w_.scores + r * kScoreStride;
    const LogitRow logits(p_, b, h, i, key, span);
    const int64_t from = columns.begin / kLanes * kLanes;
    Vec block_max = set(-kInfinity);
    for (int64_t c = from; c < columns.end; c += kLanes) {
      const Vec z = hn::IfThenElse(inside(c, span.begin, span.end),
                                   logits.post(logits.capped(load(row + c), c)), set(-kInfinity));
      store(z, row + c);
      block_max = hn::Max(block_max, z);
    }
    if (!raise_max(r, block_max, {from, columns.end})) return clear_row(row, columns);
    const Vec max = set(w_.max[r]);
    const Dropout dropout(p_, b, h, i);
    Vec sum = load(w_.sum + r * kAlign);
    Vec entropy = o_.entropy ? load(w_.entropy + r * kAlign) : hn::Zero(F32());
    for (int64_t c = from; c < columns.end; c += kLanes) {
      const Vec below = hn::Sub(load(row + c), max);
      const Vec p = exp(below);
      sum = hn::Add(sum, p);
      entropy = hn::Add(entropy, weighed(p, below));
      store(hn::Mul(p, dropout(key + c)), row + c);
    }
    store(sum, w_.sum + r * kAlign);
    if (o_.entropy) store(entropy, w_.entropy + r * kAlign);
  }

  const AttentionParams<T, C>& p_;
  const AttentionOutputs<T>& o_;
  const SoftmaxScratch& w_;
  const int64_t v_stride_;
  const bool plain_;
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
