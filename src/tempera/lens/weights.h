#pragma once

#include "tempera/lens/view.h"

// Attention weights of parts of a head, computed when they are asked for.
namespace tempera::lens {

struct Span {
  int64_t first = 0, count = 0;
};

// (rows, keys) float32: how much each of the rows looks at each of the keys. Throws where the head
// or a part of the spans is not there.
torch::Tensor weights(const Attention& attention, int64_t head, Span rows, Span keys);

// A picture of a part of a head: every cell is the largest weight of a square of `cell` rows by
// `cell` keys, so that a single key that matters is seen from any distance.
// (ceil(rows / cell), ceil(keys / cell)) float32.
torch::Tensor maxima(const Attention& attention, int64_t head, Span rows, Span keys, int64_t cell);

// The same of the whole head, and for every row the keys that have most of its weight.
struct Digest {
  torch::Tensor maxima;      // (ceil(rows / cell), ceil(keys / cell)) float32
  torch::Tensor top_key;     // (rows, most) int64
  torch::Tensor top_weight;  // (rows, most) float32
};
Digest digest(const Attention& attention, int64_t head, int64_t cell, int64_t most);

}  // namespace tempera::lens
