#pragma once

#include <cstddef>
#include <cstdint>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/cpu/tiles.h"

// Where the scratch memory of a worker lies: plain arithmetic, no SIMD.
namespace tempera::kernels::cpu {

// Hands out pieces of the workspace, aligned to cache lines. Without a base it only counts, so that
// one function says both how much is needed and where it is.
class Arena {
 public:
  explicit Arena(void* base = nullptr) : base_(static_cast<std::byte*>(base)) {}

  float* floats(int64_t count) {
    std::byte* at = base_ ? base_ + used_ : nullptr;
    used_ += static_cast<size_t>(round_up(count, kAlign)) * sizeof(float);
    return reinterpret_cast<float*>(at);
  }
  size_t used() const { return used_; }
  std::byte* at() const { return base_ ? base_ + used_ : nullptr; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// Item `turn` of split `split`: there and back again, so that heavy and light items alternate and
// each split gets about the same work under causality.
inline int64_t zigzag(int64_t turn, int64_t split, int64_t splits) {
  return turn * splits + (turn % 2 == 0 ? split : splits - 1 - split);
}

// Scale values of one operand's rows, and what the backward pass needs of the recipe.
struct ScaleScratch {
  float* total;  // a
  float* tanh;   // the recipe's token term

  ScaleScratch(Arena& arena, int64_t rows) : total(arena.floats(rows)), tanh(arena.floats(rows)) {}
};

// The scalar gradients of a recipe, behind those of w (padded to kAlign) in the sums of one task.
// Rows cancel, so the sums are in double.
struct RecipeScalars {
  double g, c, s;
};
inline RecipeScalars& recipe_scalars(float* sums, int64_t size) {
  return *reinterpret_cast<RecipeScalars*>(sums + round_up(size, kAlign));
}

// The running softmax of a tile's rows.
inline constexpr int64_t kScoreStride = kForwardKeys;

struct SoftmaxScratch {
  float* scores;   // rows x kScoreStride
  float* out;      // unnormalised
  float* max;      // of the rows
  float* sum;      // kAlign partial sums a row
  float* entropy;  // likewise: sum of p (logit - max)

  SoftmaxScratch(Arena& arena, int64_t rows, int64_t v_size)
      : scores(arena.floats(rows * kScoreStride)),
        out(arena.floats(rows * packed_stride(v_size))),
        max(arena.floats(rows)),
        sum(arena.floats(rows * kAlign)),
        entropy(arena.floats(rows * kAlign)) {}
};

// What one worker of the forward pass owns.
struct ForwardScratch {
  float* keys;    // panels of transposed keys, times a_k
  float* values;  // rows, times a_v
  float* panel;   // rows of one panel, before transposition
  ScaleScratch k_scale, v_scale, q_scale;
  float* queries;  // a tile, times scale * a_q
  SoftmaxScratch softmax;

  ForwardScratch(Arena& arena, const Shape& s)
      : keys(arena.floats(round_up(s.kv_rows, kPanel) * s.qk_size)),
        values(arena.floats(s.kv_rows * packed_stride(s.v_size))),
        panel(arena.floats(kPanel * packed_stride(s.qk_size))),
        k_scale(arena, s.kv_rows),
        v_scale(arena, s.kv_rows),
        q_scale(arena, kQueryTile),
        queries(arena.floats(kQueryTile * packed_stride(s.qk_size))),
        softmax(arena, kQueryTile, s.v_size) {}
};

// What one worker of decoding owns. Its rows are those of all query heads of one kv head.
struct DecodeScratch {
  float* queries;
  ScaleScratch q_scale;
  SoftmaxScratch softmax;

  DecodeScratch(Arena& arena, const Shape& s)
      : queries(arena.floats(rows(s) * packed_stride(s.qk_size))),
        q_scale(arena, rows(s)),
        softmax(arena, rows(s), s.v_size) {}

  static int64_t rows(const Shape& s) { return s.q_heads / s.kv_heads * s.q_rows; }
};

// One (batch, kv head) of the backward pass, or one split of its keys, and where its sums go.
struct BackwardPart {
  int64_t batch;
  int64_t kv_head;
  int64_t split;
  int64_t splits;
  float* d_queries;  // (heads, q_rows) of packed rows
  float* d_post;     // (heads, q_rows)
  float* k_sums;     // of the recipes' parameters
  float* v_sums;
  float* sink_sums;  // (heads); absent for every split but the first
};

// Partial sums of rows, one set a split.
struct SplitSums {
  float* data;
  int64_t splits;
  int64_t split_stride;

  float* row(int64_t split, int64_t i, int64_t stride) const {
    return data + split * split_stride + i * stride;
  }
};

// What one worker of the backward pass owns. `heads` are the query heads of one kv head.
struct BackwardScratch {
  float* queries;        // (heads, q_rows), times scale * a_q
  float* d_out;          // (heads, q_rows), times the sink's factor
  float* lse;            // (heads, q_rows); +inf where nothing is visible
  float* offset;         // (heads, q_rows): what is subtracted from dP
  ScaleScratch q_scale;  // (heads, q_rows)
  float* d_queries;      // (heads, q_rows): sum over keys of G a_k k; absent when the splits own it
  float* d_post;         // (heads, q_rows); likewise
  float* keys;           // one block: rows, times a_k
  float* keys_t;         // panels
  float* values_t;       // panels, times a_v
  float* values;         // rows, before transposition
  ScaleScratch k_scale, v_scale;
  float* scores;    // kQueryTile x kBackwardKeys: logits, then P
  float* d_scores;  // dP, then G
  float* d_keys;
  float* d_values;

  BackwardScratch(Arena& arena, const Shape& s, bool own_d_queries)
      : queries(arena.floats(rows(s) * packed_stride(s.qk_size))),
        d_out(arena.floats(rows(s) * packed_stride(s.v_size))),
        lse(arena.floats(rows(s))),
        offset(arena.floats(rows(s))),
        q_scale(arena, rows(s)),
        d_queries(own_d_queries ? arena.floats(rows(s) * packed_stride(s.qk_size)) : nullptr),
        d_post(own_d_queries ? arena.floats(rows(s)) : nullptr),
        keys(arena.floats(kBackwardKeys * packed_stride(s.qk_size))),
        keys_t(arena.floats(kBackwardKeys * s.qk_size)),
        values_t(arena.floats(kBackwardKeys * s.v_size)),
        values(arena.floats(kBackwardKeys * packed_stride(s.v_size))),
        k_scale(arena, kBackwardKeys),
        v_scale(arena, kBackwardKeys),
        scores(arena.floats(kQueryTile * kBackwardKeys)),
        d_scores(arena.floats(kQueryTile * kBackwardKeys)),
        d_keys(arena.floats(kBackwardKeys * packed_stride(s.qk_size))),
        d_values(arena.floats(kBackwardKeys * packed_stride(s.v_size))) {}

  static int64_t rows(const Shape& s) { return s.q_heads / s.kv_heads * s.q_rows; }
};

}  // namespace tempera::kernels::cpu
