#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tempera/kernels/cpu/layout.h"

// How the work of a pass is divided into tasks, and the memory that they share.
namespace tempera::kernels::cpu {

// Parts that each unit of work is cut into so that every worker gets tasks; 1 when there are units
// enough.
inline int64_t split_count(int64_t units, int64_t parts, int workers, int64_t tasks_per_worker) {
  if (workers == 1 || units >= tasks_per_worker * workers) return 1;
  const int64_t wanted = (tasks_per_worker * workers + units - 1) / units;
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(parts, 1));
}

// Scratch memory of all workers, one piece after the other.
class WorkerMemory {
 public:
  template <class Scratch, class... Args>
  static WorkerMemory reserve(Arena& arena, int workers, const Args&... args) {
    WorkerMemory memory;
    memory.base_ = arena.at();
    for (int i = 0; i < workers; ++i) {
      const size_t start = arena.used();
      Scratch(arena, args...);
      memory.bytes_ = arena.used() - start;
    }
    return memory;
  }
  Arena of(int worker) const { return Arena(base_ + static_cast<size_t>(worker) * bytes_); }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

// The forward pass: tasks are (batch, kv head, split of the query tiles).
class ForwardPlan {
 public:
  ForwardPlan(Arena& arena, const Shape& s, int workers)
      : shape_(s),
        splits_(even_splits(s, workers)),
        head_max_(arena.floats(tasks() * (s.q_heads / s.kv_heads))),
        workers_(WorkerMemory::reserve<ForwardScratch>(arena, workers, s)) {}

  int64_t splits() const { return splits_; }
  int64_t tasks() const { return shape_.batch * shape_.kv_heads * splits_; }
  float* head_max(int64_t task) const {
    return head_max_ + task * (shape_.q_heads / shape_.kv_heads);
  }
  ForwardScratch worker(int index) const {
    Arena arena = workers_.of(index);
    return {arena, shape_};
  }

 private:
  static int64_t tiles(const Shape& s) { return (s.q_rows + kQueryTile - 1) / kQueryTile; }

  // So many that no worker has a task more than another, where that is possible: they are alike.
  static int64_t even_splits(const Shape& s, int workers) {
    const int64_t units = s.batch * s.kv_heads, most = s.q_heads / s.kv_heads * tiles(s);
    int64_t splits = split_count(units, most, workers, 4);
    while (splits > 1 && splits < most && units * splits % workers != 0) ++splits;
    return splits;
  }

  Shape shape_;
  int64_t splits_;
  float* head_max_;  // (tasks, query heads of a kv head)
  WorkerMemory workers_;
};

// Decoding: tasks are (batch, kv head, split of the keys); what each found of its keys is merged
// afterwards.
class DecodePlan {
 public:
  // Paged sequences come and go: each is cut by its own length alone, so that those beside it do
  // not change its bits.
  DecodePlan(Arena& arena, const Shape& s, int workers, bool paged)
      : shape_(s),
        paged_(paged),
        splits_(paged ? (s.kv_rows + kPagedKeys - 1) / kPagedKeys
                      : split_count(s.batch * s.kv_heads, s.kv_rows / kLeastKeys, workers, 4)),
        part_(DecodeScratch::rows(s) * (packed_stride(s.v_size) + kState)),
        parts_(arena.floats(tasks() * part_)),
        workers_(WorkerMemory::reserve<DecodeScratch>(arena, workers, s)) {}

  static constexpr int64_t kState = kAlign;  // of a row behind its output: max, sum, entropy

  int64_t splits() const { return splits_; }
  int64_t tasks() const { return shape_.batch * shape_.kv_heads * splits_; }
  float* part(int64_t task) const { return parts_ + task * part_; }
  DecodeScratch worker(int index) const {
    Arena arena = workers_.of(index);
    return {arena, shape_};
  }
  // The keys of one split of a sequence with `length` rows.
  KeyRange keys(int64_t split, int64_t length) const {
    const int64_t share = paged_ ? kPagedKeys : round_up((length + splits_ - 1) / splits_, kAlign);
    const int64_t begin = std::min(length, split * share);
    return {begin, std::min(length, begin + share)};
  }

 private:
  static constexpr int64_t kLeastKeys = 128;  // worth a task of their own
  static constexpr int64_t kPagedKeys = 512;

  Shape shape_;
  bool paged_;
  int64_t splits_;
  int64_t part_;
  float* parts_;
  WorkerMemory workers_;
};

// Partial sums of the gradients of one recipe's parameters: w, padded, then the scalars.
struct RecipeSums {
  float* data = nullptr;
  int64_t parts = 0;
  int64_t part_size = 0;

  template <class T>
  static RecipeSums reserve(Arena& arena, const Recipe<T>& recipe, int64_t parts) {
    if (!recipe.active()) return {};
    const int64_t size = round_up(recipe.size, kAlign) + kAlign;
    return {arena.floats(parts * size), parts, size};
  }
  float* start(int64_t part) const { return data ? data + part * part_size : nullptr; }
  void clear() const {
    if (data) std::memset(data, 0, static_cast<size_t>(parts * part_size) * sizeof(float));
  }
};

// The backward pass: tasks are (unit, split of the keys). A unit is the pairs (batch, kv head)
// whose bias gradients go to the same place, worked on one after the other; where none do, it is
// one pair.
struct BackwardPlan {
  Shape shape;
  int64_t bias_batches;  // distinct places of the bias gradient; all where there is none
  int64_t bias_heads;
  int64_t splits;
  int64_t d_queries_size;
  float* d_queries = nullptr;  // (pairs, splits) of d_queries_size; one split: the workers own it
  float* d_post = nullptr;
  float* sink_sums;
  RecipeSums q_sums, k_sums, v_sums;
  WorkerMemory workers;

  template <class T>
  BackwardPlan(Arena& arena, const AttentionParams<T>& p, const AttentionGradients<T>& g,
               int worker_count)
      : shape(p.shape),
        bias_batches(g.bias && g.bias.batch == 0 ? 1 : shape.batch),
        bias_heads(g.bias && g.bias.head == 0 ? 1 : shape.q_heads),
        splits(split_count(units(), (shape.kv_rows + kBackwardKeys - 1) / kBackwardKeys,
                           worker_count, 2)),
        d_queries_size(BackwardScratch::rows(shape) * packed_stride(shape.qk_size)),
        sink_sums(arena.floats(shape.batch * shape.q_heads)) {
    if (splits > 1) {
      d_queries = arena.floats(pairs() * splits * d_queries_size);
      d_post = arena.floats(pairs() * splits * BackwardScratch::rows(shape));
    }
    q_sums = RecipeSums::reserve(arena, p.q_scale.recipe, shape.batch * shape.q_heads);
    k_sums = RecipeSums::reserve(arena, p.k_scale.recipe, pairs() * splits);
    v_sums = RecipeSums::reserve(arena, p.v_scale.recipe, pairs() * splits);
    workers = WorkerMemory::reserve<BackwardScratch>(arena, worker_count, shape, splits == 1);
  }

  int64_t pairs() const { return shape.batch * shape.kv_heads; }
  int64_t unit_batches() const { return bias_batches; }
  int64_t unit_heads() const { return bias_heads == 1 ? 1 : shape.kv_heads; }
  int64_t units() const { return unit_batches() * unit_heads(); }
  int64_t pairs_per_unit() const { return pairs() / std::max<int64_t>(units(), 1); }

  // The pair's number, batch * kv_heads + kv head.
  int64_t pair(int64_t unit, int64_t index) const {
    const int64_t heads_inside = shape.kv_heads / unit_heads();
    const int64_t b = unit / unit_heads() + index / heads_inside;
    const int64_t kv_head = unit % unit_heads() + index % heads_inside;
    return b * shape.kv_heads + kv_head;
  }

  BackwardScratch worker(int index) const {
    Arena arena = workers.of(index);
    return {arena, shape, splits == 1};
  }
  void clear_sums() const {
    for (const RecipeSums* sums : {&q_sums, &k_sums, &v_sums}) sums->clear();
  }
};

}  // namespace tempera::kernels::cpu
