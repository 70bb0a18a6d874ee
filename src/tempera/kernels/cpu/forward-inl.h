// The forward pass: query tiles against blocks of keys with a running maximum and sum, never a T x
// T matrix.
#if defined(TEMPERA_KERNELS_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_FORWARD_INL_H_
#undef TEMPERA_KERNELS_CPU_FORWARD_INL_H_
#else
#define TEMPERA_KERNELS_CPU_FORWARD_INL_H_
#endif

#include "tempera/kernels/cpu/gemm-inl.h"
#include "tempera/kernels/cpu/logits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// The tiles of one kv head (all query heads that read it), or of one split of them, by one worker.
template <class T>
class ForwardTask {
 public:
  ForwardTask(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
              const ForwardScratch& scratch)
      : p_(params),
        o_(outputs),
        w_(scratch),
        qk_stride_(packed_stride(params.shape.qk_size)),
        v_stride_(packed_stride(params.shape.v_size)),
        plain_(LogitRow::plain(params) && params.dropout <= 0 && !outputs.entropy) {}

  // head_max: one number a query head of the group, lowered by the caller to -inf.
  void run(int64_t b, int64_t kv_head, int64_t split, int64_t splits, float* head_max) {
    const int64_t group = p_.shape.q_heads / p_.shape.kv_heads;
    const int64_t tiles = (p_.shape.q_rows + kQueryTile - 1) / kQueryTile;
    pack_keys(b, kv_head, keys_of_split(b, split, splits));
    for (int64_t turn = 0; turn * splits < group * tiles; ++turn) {
      const int64_t item = zigzag(turn, split, splits);
      if (item >= group * tiles) continue;
      tile(b, kv_head * group + item / tiles, item % tiles * kQueryTile, head_max + item / tiles);
    }
  }

 private:
  KeyRange keys_of_split(int64_t b, int64_t split, int64_t splits) {
    const int64_t tiles = (p_.shape.q_rows + kQueryTile - 1) / kQueryTile;
    const int64_t items = p_.shape.q_heads / p_.shape.kv_heads * tiles;
    KeyRange all{p_.shape.kv_rows, 0};
    for (int64_t turn = 0; turn * splits < items; ++turn) {
      const int64_t item = zigzag(turn, split, splits);
      if (item >= items || (splits == 1 && item >= tiles)) continue;
      const int64_t first = item % tiles * kQueryTile;
      spans_.set(p_.mask, p_.shape, b, first, std::min(kQueryTile, p_.shape.q_rows - first));
      if (spans_.all.begin >= spans_.all.end) continue;
      all.begin = std::min(all.begin, spans_.all.begin);
      all.end = std::max(all.end, spans_.all.end);
    }
    return all;
  }

  void pack_keys(int64_t b, int64_t kv_head, KeyRange keys) {
    if (keys.begin >= keys.end) return;
    keys.begin = keys.begin / kPanel * kPanel;
    const int64_t count = keys.size();
    if (p_.k_scale.active())
      evaluate_scale(p_.k_scale, b, kv_head, keys.begin, count, p_.shape.kv_rows, w_.k_scale,
                     keys.begin);
    if (p_.v_scale.active())
      evaluate_scale(p_.v_scale, b, kv_head, keys.begin, count, p_.shape.kv_rows, w_.v_scale,
                     keys.begin);
    for (int64_t key = keys.begin; key < keys.end; key += kPanel) {
      const int64_t rows = std::min(kPanel, keys.end - key);
      for (int64_t r = 0; r < rows; ++r)
        pack_row(p_.k.at(b, kv_head, key + r), p_.shape.qk_size,
                 p_.k_scale.active() ? w_.k_scale.total[key + r] : 1.0F, w_.panel + r * qk_stride_);
      transpose_panels(w_.panel, qk_stride_, rows, p_.shape.qk_size,
                       w_.keys + key * p_.shape.qk_size);
      for (int64_t r = 0; r < rows; ++r)
        pack_row(p_.v.at(b, kv_head, key + r), p_.shape.v_size,
                 p_.v_scale.active() ? w_.v_scale.total[key + r] : 1.0F,
                 w_.values + (key + r) * v_stride_);
    }
  }

  void tile(int64_t b, int64_t h, int64_t first, float* head_max) {
    const int64_t rows = std::min(kQueryTile, p_.shape.q_rows - first);
    start_tile(b, h, first, rows);
    if (spans_.all.begin < spans_.all.end) {
      for (int64_t key = spans_.all.begin / kPanel * kPanel; key < spans_.all.end;
           key += kForwardKeys)
        block(b, h, first, key, std::min(kForwardKeys, spans_.all.end - key));
    }
    for (int64_t r = 0; r < rows; ++r) {
      *head_max = std::max(*head_max, w_.max[r]);
      finish_row(b, h, first + r, r);
    }
  }

  void start_tile(int64_t b, int64_t h, int64_t first, int64_t rows) {
    spans_.set(p_.mask, p_.shape, b, first, rows);
    if (p_.q_scale.active())
      evaluate_scale(p_.q_scale, b, h, first, rows, p_.shape.q_rows, w_.q_scale, 0);
    for (int64_t r = 0; r < rows; ++r)
      pack_row(p_.q.at(b, h, first + r), p_.shape.qk_size,
               p_.q_scale.active() ? p_.scale * w_.q_scale.total[r] : p_.scale,
               w_.queries + r * qk_stride_);
    std::fill_n(w_.out, rows * v_stride_, 0.0F);
    std::fill_n(w_.max, rows, -kInfinity);
    std::fill_n(w_.sum, rows * kAlign, 0.0F);
    if (o_.entropy) std::fill_n(w_.entropy, rows * kAlign, 0.0F);
  }

  void block(int64_t b, int64_t h, int64_t first, int64_t key, int64_t width) {
    const Strips strips = spans_.strips(key, width);
    multiply_columns(
        strips,
        {w_.queries, qk_stride_, 1, w_.keys + key * p_.shape.qk_size, 0, w_.scores, kForwardKeys},
        p_.shape.qk_size);
    for (const Strip& strip : strips.list()) {
      for (int64_t r = strip.row; r < strip.row + strip.rows; ++r) {
        const KeyRange span = spans_.row(r, key, width);
        if (plain_) {
          softmax_row(r, strip, span);
        } else {
          general_row(b, h, first + r, r, key, strip, span);
        }
      }
    }
    accumulate_rows(
        strips,
        {w_.scores, kForwardKeys, 1, w_.values + key * v_stride_, v_stride_, w_.out, v_stride_},
        round_up(p_.shape.v_size, kLanes));
  }

  // Raises the row's maximum to that of the block and scales what was summed before. False: nothing
  // visible yet.
  HWY_INLINE bool raise_max(int64_t r, Vec block_max) {
    const float old_max = w_.max[r];
    const bool nan = !hn::AllFalse(F32(), hn::IsNaN(block_max));
    const float new_max =
        nan ? std::numeric_limits<float>::quiet_NaN() : std::max(old_max, max_lanes(block_max));
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

  HWY_INLINE void clear_row(float* row, const Strip& strip) {
    for (int64_t c = strip.begin / kLanes * kLanes; c < strip.end; c += kLanes)
      store(hn::Zero(F32()), row + c);
  }

  // Scores to unnormalised probabilities in place, with nothing between them but the mask.
  HWY_INLINE void softmax_row(int64_t r, const Strip& strip, KeyRange span) {
    float* row = w_.scores + r * kForwardKeys;
    const int64_t from = strip.begin / kLanes * kLanes;
    Vec block_max = set(-kInfinity);
    for_columns(
        from, strip.end, span, [&](int64_t c) { block_max = hn::Max(block_max, load(row + c)); },
        [&](int64_t c) {
          const Vec z =
              hn::IfThenElse(inside(c, span.begin, span.end), load(row + c), set(-kInfinity));
          store(z, row + c);
          block_max = hn::Max(block_max, z);
        });
    if (!raise_max(r, block_max)) return clear_row(row, strip);
    const Vec shift = set(w_.max[r] * kLog2E);
    Vec sum = load(w_.sum + r * kAlign);
    for (int64_t c = from; c < strip.end; c += kLanes) {
      const Vec p = exp2(hn::MulSub(load(row + c), set(kLog2E), shift));
      sum = hn::Add(sum, p);
      store(p, row + c);
    }
    store(sum, w_.sum + r * kAlign);
  }

  HWY_INLINE void general_row(int64_t b, int64_t h, int64_t i, int64_t r, int64_t key,
                              const Strip& strip, KeyRange span) {
    float* row = w_.scores + r * kForwardKeys;
    const LogitRow logits(p_, b, h, i, key, span);
    const int64_t from = strip.begin / kLanes * kLanes;
    Vec block_max = set(-kInfinity);
    for (int64_t c = from; c < strip.end; c += kLanes) {
      const Vec z = hn::IfThenElse(inside(c, span.begin, span.end), logits.logit(load(row + c), c),
                                   set(-kInfinity));
      store(z, row + c);
      block_max = hn::Max(block_max, z);
    }
    if (!raise_max(r, block_max)) return clear_row(row, strip);
    const Vec max = set(w_.max[r]);
    const DropoutRow drop = dropout_row(
        p_.seed, static_cast<uint64_t>((b * p_.shape.q_heads + h) * p_.shape.q_rows + i));
    const uint32_t threshold = dropout_threshold(static_cast<double>(p_.dropout));
    Vec sum = load(w_.sum + r * kAlign);
    Vec entropy = o_.entropy ? load(w_.entropy + r * kAlign) : hn::Zero(F32());
    for (int64_t c = from; c < strip.end; c += kLanes) {
      const Vec below = hn::Sub(load(row + c), max);
      const Vec p = exp(below);
      sum = hn::Add(sum, p);
      // 0 * -inf is no number: a key without weight adds nothing.
      const auto weighs = hn::Gt(p, hn::Zero(F32()));
      entropy = hn::Add(entropy, hn::IfThenElseZero(weighs, hn::Mul(p, below)));
      const Vec keep =
          p_.dropout > 0 ? keep_scale(drop, key + c, threshold, 1 / (1 - p_.dropout)) : set(1.0F);
      store(hn::Mul(p, keep), row + c);
    }
    store(sum, w_.sum + r * kAlign);
    if (o_.entropy) store(entropy, w_.entropy + r * kAlign);
  }

  HWY_INLINE void finish_row(int64_t b, int64_t h, int64_t i, int64_t r) {
    const float max = w_.max[r];
    const float sum = sum_lanes(load(w_.sum + r * kAlign));
    const bool sees = max > -kInfinity;
    const float lse = sees ? max + std::log(sum) : (max != max ? max : -kInfinity);
    float factor = sees ? 1 / sum : 0.0F;
    if (p_.sinks && sees) factor /= 1 + std::exp(p_.sinks[h] - lse);
    unpack_row(w_.out + r * v_stride_, p_.shape.v_size, factor, o_.out.at(b, h, i));
    if (o_.lse) *o_.lse.at(b, h, i) = lse;
    if (o_.max) *o_.max.at(b, h, i) = max;
    if (o_.entropy) {
      const float mean = sees ? sum_lanes(load(w_.entropy + r * kAlign)) / sum : 0.0F;
      *o_.entropy.at(b, h, i) = sees ? std::log(sum) - mean : 0.0F;
    }
  }

  const AttentionParams<T>& p_;
  const AttentionOutputs<T>& o_;
  const ForwardScratch& w_;
  const int64_t qk_stride_;
  const int64_t v_stride_;
  const bool plain_;
  TileSpans spans_;
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
