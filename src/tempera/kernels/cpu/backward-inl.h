// The backward pass: blocks of keys outside, query tiles inside, so that the gradients of keys and
// values stay in the cache and the five products are done once each. Gradients of queries are
// summed per (batch, kv head, split).
#if defined(TEMPERA_KERNELS_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_BACKWARD_INL_H_
#undef TEMPERA_KERNELS_CPU_BACKWARD_INL_H_
#else
#define TEMPERA_KERNELS_CPU_BACKWARD_INL_H_
#endif

#include "tempera/kernels/cpu/gemm-inl.h"
#include "tempera/kernels/cpu/logits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Sums over splits and writes the gradients of one query head's rows: d_q, and those of its scale
// and of post.
template <class T>
class QueryFinish {
 public:
  QueryFinish(const AttentionParams<T>& params, const AttentionGradients<T>& gradients)
      : p_(params), g_(gradients), stride_(packed_stride(params.shape.qk_size)) {}

  // d_queries, d_post: (splits, ...) with the given strides between splits; the first is
  // overwritten. a: the row scales and token terms of this head. sums: of the recipe's parameters.
  void run(int64_t b, int64_t h, const SplitSums& d_queries, const SplitSums& d_post,
           const float* a, const float* token, float* sums) const {
    const ScaleBackward<T> scale{p_.q_scale, g_.q_scale, p_.shape.q_rows, sums};
    const bool into_operand = p_.q_scale.recipe.w && p_.q_scale.recipe.source.data == p_.q.data;
    const int64_t size = p_.shape.qk_size;
    for (int64_t i = 0; i < p_.shape.q_rows; ++i) {
      float* row = d_queries.row(0, i, stride_);
      for (int64_t split = 1; split < d_queries.splits; ++split) {
        const float* other = d_queries.row(split, i, stride_);
        for (int64_t c = 0; c < size; c += kLanes)
          store(hn::Add(load(row + c), load(other + c)), row + c);
      }
      if (g_.post) {
        float sum = 0;
        for (int64_t split = 0; split < d_post.splits; ++split) sum += *d_post.row(split, i, 1);
        *g_.post.at(b, h, i) = sum;
      }
      const float d_a = p_.scale * dot_rows(row, p_.q.at(b, h, i), size);
      const Vec factor = set(p_.scale * (p_.q_scale.active() ? a[i] : 1.0F));
      for (int64_t c = 0; c < size; c += kLanes) store(hn::Mul(load(row + c), factor), row + c);
      if (p_.q_scale.active()) scale.row(b, h, i, d_a, token[i], into_operand, row);
      if (g_.q) unpack_row(row, size, 1.0F, g_.q.at(b, h, i));
    }
  }

 private:
  const AttentionParams<T>& p_;
  const AttentionGradients<T>& g_;
  const int64_t stride_;
};

template <class T>
class BackwardTask {
 public:
  BackwardTask(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
               const BackwardScratch& scratch)
      : p_(params),
        g_(gradients),
        w_(scratch),
        group_(params.shape.q_heads / params.shape.kv_heads),
        qk_stride_(packed_stride(params.shape.qk_size)),
        v_stride_(packed_stride(params.shape.v_size)),
        plain_(LogitRow::plain(params) && params.dropout <= 0) {}

  // One (batch, kv head), and of its blocks of keys those of the split.
  void run(const BackwardPart& part) {
    pack_queries(part);
    const int64_t blocks = (p_.shape.kv_rows + kBackwardKeys - 1) / kBackwardKeys;
    for (int64_t turn = 0; turn * part.splits < blocks; ++turn) {
      const int64_t block = zigzag(turn, part.split, part.splits);
      if (block < blocks) key_block(part, block * kBackwardKeys);
    }
  }

 private:
  void pack_queries(const BackwardPart& part) {
    const int64_t rows = p_.shape.q_rows;
    std::fill_n(part.d_queries, group_ * rows * qk_stride_, 0.0F);
    if (g_.post) std::fill_n(part.d_post, group_ * rows, 0.0F);
    for (int64_t head = 0; head < group_; ++head) {
      const int64_t h = part.kv_head * group_ + head;
      if (p_.q_scale.active())
        evaluate_scale(p_.q_scale, part.batch, h, 0, rows, rows, w_.q_scale, head * rows);
      float d_sink = 0;
      for (int64_t i = 0; i < rows; ++i) d_sink += pack_query(part.batch, h, i, head * rows + i);
      if (part.sink_sums) part.sink_sums[head] = d_sink;
    }
  }

  // Returns the row's share of the sink's gradient.
  HWY_INLINE float pack_query(int64_t b, int64_t h, int64_t i, int64_t at) {
    const int64_t v_size = p_.shape.v_size;
    pack_row(p_.q.at(b, h, i), p_.shape.qk_size,
             p_.q_scale.active() ? p_.scale * w_.q_scale.total[at] : p_.scale,
             w_.queries + at * qk_stride_);
    const float lse = *g_.lse.at(b, h, i);
    // The probability that the sink leaves to the keys.
    const float share =
        p_.sinks ? (lse > -kInfinity ? 1 / (1 + std::exp(p_.sinks[h] - lse)) : 0.0F) : 1.0F;
    float* d_out = w_.d_out + at * v_stride_;
    pack_row(g_.d_out.at(b, h, i), v_size, 1.0F, d_out);
    const float delta = dot_rows(d_out, g_.out.at(b, h, i), v_size);
    if (p_.sinks)
      for (int64_t c = 0; c < v_size; c += kLanes)
        store(hn::Mul(load(d_out + c), set(share)), d_out + c);
    w_.lse[at] = lse;
    if (lse == -kInfinity) w_.lse[at] = kInfinity;  // nothing visible: every probability is 0
    w_.offset[at] = share * delta - (g_.d_lse ? *g_.d_lse.at(b, h, i) : 0.0F);
    return (share - 1) * delta;
  }

  void pack_keys(const BackwardPart& part, int64_t key, int64_t width) {
    const int64_t b = part.batch, h = part.kv_head;
    if (p_.k_scale.active())
      evaluate_scale(p_.k_scale, b, h, key, width, p_.shape.kv_rows, w_.k_scale, 0);
    if (p_.v_scale.active())
      evaluate_scale(p_.v_scale, b, h, key, width, p_.shape.kv_rows, w_.v_scale, 0);
    for (int64_t r = 0; r < width; ++r) {
      pack_row(p_.k.at(b, h, key + r), p_.shape.qk_size,
               p_.k_scale.active() ? w_.k_scale.total[r] : 1.0F, w_.keys + r * qk_stride_);
      pack_row(p_.v.at(b, h, key + r), p_.shape.v_size,
               p_.v_scale.active() ? w_.v_scale.total[r] : 1.0F, w_.values + r * v_stride_);
    }
    transpose_panels(w_.keys, qk_stride_, width, p_.shape.qk_size, w_.keys_t);
    transpose_panels(w_.values, v_stride_, width, p_.shape.v_size, w_.values_t);
    std::fill_n(w_.d_keys, width * qk_stride_, 0.0F);
    std::fill_n(w_.d_values, width * v_stride_, 0.0F);
  }

  void key_block(const BackwardPart& part, int64_t key) {
    const int64_t width = std::min(kBackwardKeys, p_.shape.kv_rows - key);
    pack_keys(part, key, width);
    for (int64_t first = 0; first < p_.shape.q_rows; first += kQueryTile) {
      spans_.set(p_.mask, p_.shape, part.batch, first,
                 std::min(kQueryTile, p_.shape.q_rows - first));
      if (!spans_.overlaps(key, width)) continue;
      const Strips strips = spans_.strips(key, width);
      const Strips key_strips = spans_.key_strips(key, width);
      for (int64_t head = 0; head < group_; ++head)
        tile(part, head, first, key, width, strips, key_strips);
    }
    finish_keys(part, key, width);
  }

  void tile(const BackwardPart& part, int64_t head, int64_t first, int64_t key, int64_t width,
            const Strips& strips, const Strips& key_strips) {
    const int64_t at = head * p_.shape.q_rows + first;
    const float* queries = w_.queries + at * qk_stride_;
    const float* d_out = w_.d_out + at * v_stride_;
    multiply_columns(strips, {queries, qk_stride_, 1, w_.keys_t, 0, w_.scores, kBackwardKeys},
                     p_.shape.qk_size);
    multiply_columns(strips, {d_out, v_stride_, 1, w_.values_t, 0, w_.d_scores, kBackwardKeys},
                     p_.shape.v_size);
    for (int64_t r = 0; r < spans_.rows; ++r) {
      const KeyRange span = spans_.row(r, key, width);
      if (plain_) {
        plain_row(r, at + r, span, width);
      } else {
        general_row(part, head, first + r, r, key, span, width);
      }
    }
    const int64_t v_columns = round_up(p_.shape.v_size, kLanes);
    const int64_t qk_columns = round_up(p_.shape.qk_size, kLanes);
    accumulate_rows(key_strips,
                    {w_.scores, 1, kBackwardKeys, d_out, v_stride_, w_.d_values, v_stride_},
                    v_columns);
    accumulate_rows(key_strips,
                    {w_.d_scores, 1, kBackwardKeys, queries, qk_stride_, w_.d_keys, qk_stride_},
                    qk_columns);
    accumulate_rows(strips,
                    {w_.d_scores, kBackwardKeys, 1, w_.keys, qk_stride_,
                     part.d_queries + at * qk_stride_, qk_stride_},
                    qk_columns);
  }

  // Scores and dP to P and G in place; zeros outside the span, over the whole width of the block.
  HWY_INLINE void plain_row(int64_t r, int64_t at, KeyRange span, int64_t width) {
    float* scores = w_.scores + r * kBackwardKeys;
    float* d_scores = w_.d_scores + r * kBackwardKeys;
    const Vec lse = set(w_.lse[at]);
    const Vec offset = set(w_.offset[at]);
    for_columns(
        0, width, span,
        [&](int64_t c) {
          const Vec p = exp(hn::Sub(load(scores + c), lse));
          store(p, scores + c);
          store(hn::Mul(p, hn::Sub(load(d_scores + c), offset)), d_scores + c);
        },
        [&](int64_t c) {
          if (c + kLanes <= span.begin || c >= span.end) {
            store(hn::Zero(F32()), scores + c);
            return store(hn::Zero(F32()), d_scores + c);
          }
          const auto seen = inside(c, span.begin, span.end);
          const Vec p = exp(hn::Sub(load(scores + c), lse));
          const Vec g = hn::Mul(p, hn::Sub(load(d_scores + c), offset));
          store(hn::IfThenElseZero(seen, p), scores + c);
          store(hn::IfThenElseZero(seen, g), d_scores + c);
        });
  }

  HWY_INLINE void general_row(const BackwardPart& part, int64_t head, int64_t i, int64_t r,
                              int64_t key, KeyRange span, int64_t width) {
    const int64_t h = part.kv_head * group_ + head;
    const int64_t at = head * p_.shape.q_rows + i;
    float* scores = w_.scores + r * kBackwardKeys;
    float* d_scores = w_.d_scores + r * kBackwardKeys;
    const LogitRow logits(p_, part.batch, h, i, key, span);
    const Dropout dropout(p_, part.batch, h, i);
    float* d_bias = g_.bias ? g_.bias.at(part.batch, h, i) + key : nullptr;
    const Vec lse = set(w_.lse[at]);
    const Vec offset = set(w_.offset[at]);
    Vec d_post = hn::Zero(F32());
    for (int64_t c = 0; c < width; c += kLanes) {
      const auto seen = inside(c, span.begin, span.end);
      const Vec capped = hn::IfThenElseZero(seen, logits.capped(load(scores + c), c));
      const Vec p = hn::IfThenElseZero(seen, exp(hn::Sub(logits.post(capped), lse)));
      const Vec keep = dropout(key + c);
      const Vec d_p = hn::IfThenElseZero(seen, load(d_scores + c));
      const Vec d_logit = hn::Mul(p, hn::MulSub(d_p, keep, offset));
      d_post = hn::MulAdd(d_logit, finite(capped), d_post);
      const Vec d_score = logits.backward(d_logit, finite(capped));
      store(hn::Mul(p, keep), scores + c);
      store(d_score, d_scores + c);
      if (d_bias) add_bias(d_bias, c, span, d_score);
    }
    if (g_.post) part.d_post[at] += sum_lanes(d_post);
  }

  // A logit of -inf (from a bias) has no weight and moves nothing, but 0 * inf is no number.
  HWY_INLINE static Vec finite(Vec x) { return hn::IfThenElseZero(hn::IsFinite(x), x); }

  HWY_INLINE static void add_bias(float* d_bias, int64_t c, KeyRange span, Vec d) {
    const int64_t from = std::max(c, span.begin);
    const int64_t to = std::min(c + kLanes, span.end);
    if (to - from == kLanes) return store(hn::Add(load(d_bias + c), d), d_bias + c);
    alignas(64) float part[kLanes];
    store(d, part);
    for (int64_t k = from; k < to; ++k) d_bias[k] += part[k - c];
  }

  void finish_keys(const BackwardPart& part, int64_t key, int64_t width) {
    const Operand k{p_.k, p_.k_scale, g_.k, g_.k_scale, p_.shape.qk_size, w_.k_scale, part.k_sums};
    const Operand v{p_.v, p_.v_scale, g_.v, g_.v_scale, p_.shape.v_size, w_.v_scale, part.v_sums};
    for (int64_t r = 0; r < width; ++r) {
      finish_row(part, k, key + r, r, w_.d_keys + r * qk_stride_);
      finish_row(part, v, key + r, r, w_.d_values + r * v_stride_);
    }
  }

  struct Operand {
    const Rows<const T>& rows;
    const Scale<T>& scale;
    const Rows<T>& gradient;
    const ScaleGradient<T>& scale_gradient;
    int64_t size;
    const ScaleScratch& a;
    float* sums;
  };

  HWY_INLINE void finish_row(const BackwardPart& part, const Operand& x, int64_t j, int64_t r,
                             float* row) {
    if (x.scale.active()) {
      const float d_a = dot_rows(row, x.rows.at(part.batch, part.kv_head, j), x.size);
      const Vec a = set(x.a.total[r]);
      for (int64_t c = 0; c < x.size; c += kLanes) store(hn::Mul(load(row + c), a), row + c);
      const bool into_operand = x.scale.recipe.w && x.scale.recipe.source.data == x.rows.data;
      ScaleBackward<T>{x.scale, x.scale_gradient, p_.shape.kv_rows, x.sums}.row(
          part.batch, part.kv_head, j, d_a, x.a.tanh[r], into_operand, row);
    }
    if (x.gradient) unpack_row(row, x.size, 1.0F, x.gradient.at(part.batch, part.kv_head, j));
  }

  const AttentionParams<T>& p_;
  const AttentionGradients<T>& g_;
  const BackwardScratch& w_;
  const int64_t group_;
  const int64_t qk_stride_;
  const int64_t v_stride_;
  const bool plain_;
  TileSpans spans_;
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
