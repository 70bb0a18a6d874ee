#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace tempera::kernels
