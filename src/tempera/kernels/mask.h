#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tempera/kernels/attention.h"

namespace tempera::kernels {

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;  // end <= begin: the row sees nothing

  int64_t size() const { return std::max<int64_t>(end - begin, 0); }
};

// The keys that query row i of sequence b can see.
inline KeyRange visible_keys(const Mask& mask, const Shape& shape, int64_t b, int64_t i) {
  const int64_t at = b * shape.q_rows + i;
  const int64_t position = mask.query_offset + i;
  KeyRange range{mask.key_begin ? mask.key_begin[at] : 0,
                 mask.key_end ? mask.key_end[at] : shape.kv_rows};
  if (mask.causal) range.end = std::min(range.end, position + 1);
  if (mask.window > 0) {
    range.begin = std::max(range.begin, position - mask.window + 1);
    range.end = std::min(range.end, position + mask.window);
  }
  range.begin = std::clamp<int64_t>(range.begin, 0, shape.kv_rows);
  range.end = std::clamp<int64_t>(range.end, range.begin, shape.kv_rows);
  return range;
}

// The documents and the padding of one side's rows (queries or keys).
struct RowLayout {
  int64_t batch = 0;
  int64_t rows = 0;
  // Lengths of the documents of every sequence, which sum to rows (padding included); empty: one
  // document each.
  std::vector<std::vector<int64_t>> documents = {};
  // The rows of every sequence that are not padding; empty: all.
  std::vector<KeyRange> content = {};
};

// (batch, q_rows) each, as Mask takes them.
struct VisibleRanges {
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
};

// A query row sees the keys of its own document that are not padding; a row that is padding sees
// nothing. Document d of the queries reads document d of the keys, so both sides have as many.
// Throws tempera::Error where they do not fit together.
VisibleRanges visible_ranges(const RowLayout& queries, const RowLayout& keys);
// Self-attention.
inline VisibleRanges visible_ranges(const RowLayout& rows) { return visible_ranges(rows, rows); }

// n of every query row, (batch, q_rows): how many keys it can see, causality and window included.
std::vector<int32_t> visible_counts(const Mask& mask, const Shape& shape);
// log max(n, 1), for float and double.
template <class R>
std::vector<R> log_visible_counts(const Mask& mask, const Shape& shape);

}  // namespace tempera::kernels
