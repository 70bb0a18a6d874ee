// A few query rows against a cache of keys and values. The cache is read once, in the order it
// lies: the work is bound by memory, so that rows are used where they are instead of being packed.
#if defined(TEMPERA_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_DECODE_INL_H_
#undef TEMPERA_KERNELS_CPU_DECODE_INL_H_
#else
#define TEMPERA_KERNELS_CPU_DECODE_INL_H_
#endif

#include <hwy/cache_control.h>

#include "tempera/kernels/cpu/plan.h"
#include "tempera/kernels/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

template <class T, class C>
class DecodeTask {
 public:
  DecodeTask(const DecodeParams<T, C>& params, const AttentionOutputs<T>& outputs,
             const DecodeScratch& scratch)
      : d_(params),
        p_(params.attention),
        w_(scratch),
        softmax_(params.attention, outputs, scratch.softmax),
        group_(p_.shape.q_heads / p_.shape.kv_heads),
        qk_stride_(packed_stride(p_.shape.qk_size)),
        v_stride_(packed_stride(p_.shape.v_size)) {}

  // What one split of the keys gives, into `part`.
  void run(int64_t b, int64_t kv_head, KeyRange keys, float* part) const {
    const int64_t rows = group_ * p_.shape.q_rows;
    softmax_.start(rows);
    pack_queries(b, kv_head);
    for (int64_t key = keys.begin; key < keys.end; key += kBlock)
      block(b, kv_head, key, std::min(kBlock, keys.end - key), keys.end);
    for (int64_t r = 0; r < rows; ++r) {
      float* to = part + r * (v_stride_ + DecodePlan::kState);
      std::copy_n(w_.softmax.out + r * v_stride_, v_stride_, to);
      to[v_stride_] = w_.softmax.max[r];
      to[v_stride_ + 1] = sum_lanes(load(w_.softmax.sum + r * kAlign));
      to[v_stride_ + 2] = sum_lanes(load(w_.softmax.entropy + r * kAlign));
    }
  }

  // Merges the splits of one (batch, kv head), always in the same order, and writes the outputs.
  void merge(int64_t b, int64_t kv_head, const DecodePlan& plan, float* head_max) const {
    const int64_t rows = group_ * p_.shape.q_rows;
    const int64_t first = (b * p_.shape.kv_heads + kv_head) * plan.splits();
    softmax_.start(rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t split = 0; split < plan.splits(); ++split)
        merge_row(r, plan.part(first + split) + r * (v_stride_ + DecodePlan::kState));
      const int64_t h = kv_head * group_ + r / p_.shape.q_rows;
      softmax_.finish({b, h, r % p_.shape.q_rows}, r);
      if (head_max)
        head_max[b * p_.shape.q_heads + h] =
            r % p_.shape.q_rows == 0
                ? w_.softmax.max[r]
                : std::max(head_max[b * p_.shape.q_heads + h], w_.softmax.max[r]);
    }
  }

 private:
  static constexpr int64_t kBlock = 64;

  // Where row j of the cache lies: its block, or its sequence.
  struct Slot {
    int64_t outer;
    int64_t row;
  };
  HWY_INLINE Slot slot(int64_t b, int64_t j) const {
    if (!d_.block_table) return {b, j};
    return {d_.block_table[b * d_.table_stride + j / d_.block_size], j % d_.block_size};
  }

  void pack_queries(int64_t b, int64_t kv_head) const {
    const int64_t rows = p_.shape.q_rows;
    for (int64_t g = 0; g < group_; ++g) {
      const int64_t h = kv_head * group_ + g;
      if (p_.q_scale.active())
        evaluate_scale(p_.q_scale, b, h, 0, rows, rows, w_.q_scale, g * rows);
      for (int64_t i = 0; i < rows; ++i)
        pack_row(p_.q.at(b, h, i), p_.shape.qk_size,
                 p_.q_scale.active() ? p_.scale * w_.q_scale.total[g * rows + i] : p_.scale,
                 w_.queries + (g * rows + i) * qk_stride_);
    }
  }

  HWY_INLINE static void prefetch(const Rows<const C>& rows, const Slot& at, int64_t kv_head,
                                  int64_t size) {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(C));
    const C* row = rows.at(at.outer, kv_head, at.row);
    for (int64_t c = 0; c < size; c += kLine) hwy::Prefetch(row + c);
  }

  // Keys [key, key + width) of a part that ends at `end`.
  void block(int64_t b, int64_t kv_head, int64_t key, int64_t width, int64_t end) const {
    const int64_t rows = group_ * p_.shape.q_rows;
    const C* values[kBlock];
    float value_scale[kBlock];
    for (int64_t j = 0; j < width; ++j) {
      const Slot at = slot(b, key + j);
      const C* k = p_.k.at(at.outer, kv_head, at.row);
      // The next block's key, and this block's value: both streams keep flowing while one is worked
      // on.
      if (key + kBlock + j < end)
        prefetch(p_.k, slot(b, key + kBlock + j), kv_head, p_.shape.qk_size);
      prefetch(p_.v, at, kv_head, p_.shape.v_size);
      const float a_k = p_.k_scale.rows ? *p_.k_scale.rows.at(at.outer, kv_head, at.row) : 1.0F;
      values[j] = p_.v.at(at.outer, kv_head, at.row);
      value_scale[j] = p_.v_scale.rows ? *p_.v_scale.rows.at(at.outer, kv_head, at.row) : 1.0F;
      in_groups(rows, [&]<int kRows>(int64_t r) {
        dot_each<kRows>(w_.queries + r * qk_stride_, qk_stride_, k, p_.shape.qk_size, a_k,
                        w_.softmax.scores + r * kScoreStride + j, kScoreStride);
      });
    }
    in_groups(rows, [&]<int kRows>(int64_t first) {
      KeyRange spans[kRows];
      bool alike = true;
      for (int64_t n = 0; n < kRows; ++n) {
        const int64_t r = first + n, i = r % p_.shape.q_rows;
        spans[n] = span_of_row(b, i, key, width);
        alike = alike && spans[n].begin == spans[0].begin && spans[n].end == spans[0].end;
        softmax_.block({b, kv_head * group_ + r / p_.shape.q_rows, i}, r, key, {0, width},
                       spans[n]);
      }
      if (alike) return add_values<kRows>(first, values, value_scale, spans[0]);
      for (int64_t n = 0; n < kRows; ++n) add_values<1>(first + n, values, value_scale, spans[n]);
    });
  }

  // Rows that go through a cached row together, which is then read and widened once.
  template <class Body>
  HWY_INLINE static void in_groups(int64_t rows, const Body& body) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) body.template operator()<4>(r);
    if (rows - r == 3) return body.template operator()<3>(r);
    if (rows - r == 2) return body.template operator()<2>(r);
    if (rows - r == 1) return body.template operator()<1>(r);
  }

  HWY_INLINE KeyRange span_of_row(int64_t b, int64_t i, int64_t key, int64_t width) const {
    Mask mask = p_.mask;
    mask.query_offset = d_.lengths[b] - p_.shape.q_rows;
    const KeyRange seen = visible_keys(mask, p_.shape, b, i);
    const int64_t begin = std::clamp<int64_t>(seen.begin - key, 0, width);
    return {begin,
            std::clamp<int64_t>(std::min<int64_t>(seen.end, d_.lengths[b]) - key, begin, width)};
  }

  // Rows from r on that see the same keys of the block; each as if it were alone.
  template <int kRows>
  HWY_INLINE void add_values(int64_t r, const C* const* values, const float* value_scale,
                             KeyRange span) const {
    constexpr int kVectors = kRows == 1 || kLanes >= 16 ? 4 : 2;  // sums that fit the registers
    const int64_t size = p_.shape.v_size;
    int64_t c = 0;
    for (; c + kVectors * kLanes <= size; c += kVectors * kLanes)
      add_columns<kRows, kVectors>(r, c, span, [&](int64_t j, Vec(&row)[kVectors]) {
        for (int v = 0; v < kVectors; ++v) row[v] = load(values[j] + c + v * kLanes);
        return value_scale[j];
      });
    for (; c < size; c += kLanes)
      add_columns<kRows, 1>(r, c, span, [&](int64_t j, Vec(&row)[1]) {
        row[0] = load_some(values[j] + c, size - c);
        return value_scale[j];
      });
  }

  // read(j, row) fills the vectors of value j from column c on, and returns its scale.
  template <int kRows, int kVectors, class Read>
  HWY_INLINE void add_columns(int64_t r, int64_t c, KeyRange span, const Read& read) const {
    const float* p = w_.softmax.scores + r * kScoreStride;
    float* out = w_.softmax.out + r * v_stride_ + c;
    Vec sum[kRows][kVectors];
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) sum[i][v] = load(out + i * v_stride_ + v * kLanes);
    for (int64_t j = span.begin; j < span.end; ++j) {
      Vec row[kVectors];
      const float scale = read(j, row);
      for (int i = 0; i < kRows; ++i) {
        const Vec weight = set(p[i * kScoreStride + j] * scale);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(weight, row[v], sum[i][v]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) store(sum[i][v], out + i * v_stride_ + v * kLanes);
  }

  HWY_INLINE void merge_row(int64_t r, const float* part) const {
    const SoftmaxScratch& w = w_.softmax;
    const float other = part[v_stride_];
    if (other == -kInfinity) return;
    const float max = other > w.max[r] || other != other ? other : w.max[r];
    const float mine = w.max[r] == -kInfinity ? 0.0F : std::exp(w.max[r] - max);
    const float theirs = std::exp(other - max);
    float* sum = w.sum + r * kAlign;
    float* entropy = w.entropy + r * kAlign;
    const float my_shift = mine > 0 ? w.max[r] - max : 0.0F;
    entropy[0] = mine * (entropy[0] + sum[0] * my_shift) +
                 theirs * (part[v_stride_ + 2] + part[v_stride_ + 1] * (other - max));
    sum[0] = mine * sum[0] + theirs * part[v_stride_ + 1];
    w.max[r] = max;
    float* out = w.out + r * v_stride_;
    for (int64_t c = 0; c < p_.shape.v_size; c += kLanes)
      store(hn::MulAdd(set(theirs), load(part + c), hn::Mul(set(mine), load(out + c))), out + c);
  }

  const DecodeParams<T, C>& d_;
  const AttentionParams<T, C>& p_;
  const DecodeScratch& w_;
  const SoftmaxRows<T, C> softmax_;
  const int64_t group_;
  const int64_t qk_stride_;
  const int64_t v_stride_;
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
