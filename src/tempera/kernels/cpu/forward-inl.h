// The forward pass: query tiles against blocks of keys with a running maximum and sum, never a T x
// T matrix.
#if defined(TEMPERA_KERNELS_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_FORWARD_INL_H_
#undef TEMPERA_KERNELS_CPU_FORWARD_INL_H_
#else
#define TEMPERA_KERNELS_CPU_FORWARD_INL_H_
#endif

#include "tempera/kernels/cpu/gemm-inl.h"
#include "tempera/kernels/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// The tiles of one kv head (all query heads that read it), or of one split of them, by one worker.
template <class T>
class ForwardTask {
 public:
  ForwardTask(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
              const ForwardScratch& scratch)
      : p_(params),
        w_(scratch),
        softmax_(params, outputs, scratch.softmax),
        qk_stride_(packed_stride(params.shape.qk_size)),
        v_stride_(packed_stride(params.shape.v_size)) {}

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
      *head_max = std::max(*head_max, w_.softmax.max[r]);
      softmax_.finish({b, h, first + r}, r);
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
    softmax_.start(rows);
  }

  void block(int64_t b, int64_t h, int64_t first, int64_t key, int64_t width) {
    const Strips strips = spans_.strips(key, width);
    multiply_columns(strips,
                     {w_.queries, qk_stride_, 1, w_.keys + key * p_.shape.qk_size, 0,
                      w_.softmax.scores, kScoreStride},
                     p_.shape.qk_size);
    for (const Strip& strip : strips.list()) {
      for (int64_t r = strip.row; r < strip.row + strip.rows; ++r) {
        const KeyRange span = spans_.row(r, key, width);
        softmax_.block({b, h, first + r}, r, key, {strip.begin, strip.end}, span);
      }
    }
    accumulate_rows(strips,
                    {w_.softmax.scores, kScoreStride, 1, w_.values + key * v_stride_, v_stride_,
                     w_.softmax.out, v_stride_},
                    round_up(p_.shape.v_size, kLanes));
  }

  const AttentionParams<T>& p_;
  const ForwardScratch& w_;
  const SoftmaxRows<T> softmax_;
  const int64_t qk_stride_;
  const int64_t v_stride_;
  TileSpans spans_;
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
