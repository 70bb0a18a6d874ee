#pragma once

#include "tempera/kernels/cuda/attention_problem.cuh"

// From products to logits, the same for forward, backward and decode: what a query row sees, and
// the features that a call may have, each a small struct made from the call. on() is the same for
// all elements of a launch: it is asked once for those of a thread, which are then computed side by
// side.
namespace tempera::kernels::cuda {

struct KeySpan {
  int begin = 0, end = 0;

  __device__ bool holds(int key) const { return key >= begin && key < end; }
  // The same keys, counted from `first`.
  __device__ KeySpan from(int first) const { return {begin - first, end - first}; }
};

// The keys that query row i of sequence b sees.
template <class T>
__device__ inline KeySpan visible_span(const Problem<T>& p, int b, int i) {
  const auto rows = static_cast<int>(p.shape.kv_rows);
  const int64_t at = b * p.shape.q_rows + i;
  int64_t begin = p.mask.key_begin ? p.mask.key_begin[at] : 0;
  int64_t end = p.mask.key_end ? p.mask.key_end[at] : rows;
  int64_t position = p.mask.query_offset + i;
  if (p.lengths) {
    position = p.lengths[b] - p.shape.q_rows + i;
    end = min(end, int64_t{p.lengths[b]});
  }
  if (p.mask.causal) end = min(end, position + 1);
  if (p.mask.window > 0) {
    begin = max(begin, position - p.mask.window + 1);
    end = min(end, position + p.mask.window);
  }
  begin = min(max(begin, int64_t{0}), int64_t{rows});
  end = min(max(end, begin), int64_t{rows});
  return {static_cast<int>(begin), static_cast<int>(end)};
}

// What a query row's logits depend on.
struct QueryRow {
  float factor = 0;  // scale * a_q
  float post = 1;
  KeySpan keys;  // that it sees
  const float* bias = nullptr;
  DropoutRow dropout = {};
};

// What the features of a call need of query row i; `dense` counts (batch, q_heads, q_rows).
template <class T>
__device__ inline void load_features(const Problem<T>& p, int b, int h, int i, int64_t dense,
                                     QueryRow& row) {
  if (p.post.data) row.post = *row_at(p.post, b, h, i);
  if (p.bias.data) row.bias = row_at(p.bias, b, h, i);
  if (p.threshold > 0) row.dropout = dropout_row(p.seed, static_cast<uint64_t>(dense));
}

// A logit on its way, and its derivative by what it was before the features.
struct Logit {
  float x;
  float slope = 1;
};

// Keys that the row does not see may have none.
struct Bias {
  bool given;

  __device__ bool on() const { return given; }
  __device__ void operator()(const QueryRow& row, int key, Logit& logit) const {
    if (row.keys.holds(key)) logit.x += row.bias[key];
  }
};

template <class T>
struct Cap {
  float cap;

  __device__ bool on() const { return cap > 0; }
  __device__ void operator()(const QueryRow&, int, Logit& logit) const {
    const float t = sizeof(T) == 4 ? tanhf(logit.x / cap) : tanh_of(__fdividef(logit.x, cap));
    logit.x = cap * t;
    logit.slope = 1 - t * t;
  }
};

// each(feature) applies the feature to every element that the thread has.
template <class T, class Each>
__device__ inline void apply_features(const Problem<T>& p, Each each) {
  if (const Bias bias{p.bias.data != nullptr}; bias.on()) each(bias);
  if (const Cap<T> cap{p.cap}; cap.on()) each(cap);
}

// The multiplier of a row after its features, whose gradient needs both sides of it.
struct Post {
  float factor;

  __device__ float operator()(float x) const { return x * factor; }
};

// What a weight is multiplied by: 0, or the inverse of how many are kept.
template <class T>
struct Dropout {
  const Problem<T>& p;

  __device__ bool on() const { return p.threshold > 0; }
  __device__ float operator()(const QueryRow& row, int key) const {
    return dropout_bits(row.dropout, static_cast<uint32_t>(key)) >= p.threshold ? p.keep : 0;
  }
};

// A row's keys, and what they mean for the rows of a warp that are in the call (inside).
struct WarpSpan {
  KeySpan some;  // holds the keys that any row sees
  KeySpan all;   // the keys that all rows see
  __device__ bool touches(int first, int count) const {
    return first < some.end && first + count > some.begin;
  }
  __device__ bool holds(int first, int count) const {
    return first >= all.begin && first + count <= all.end;
  }
};

__device__ inline WarpSpan warp_span(KeySpan row, bool inside) {
  const bool sees = inside && row.begin < row.end;
  return {{__reduce_min_sync(kAllLanes, sees ? row.begin : INT32_MAX),
           __reduce_max_sync(kAllLanes, sees ? row.end : 0)},
          {__reduce_max_sync(kAllLanes, inside ? row.begin : 0),
           __reduce_min_sync(kAllLanes, inside ? row.end : INT32_MAX)}};
}

}  // namespace tempera::kernels::cuda
