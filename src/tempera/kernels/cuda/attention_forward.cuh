#pragma once

#include "tempera/kernels/cuda/attention_problem.cuh"
#include "tempera/kernels/cuda/attention_tile.cuh"

// The softmax of the forward pass: a row's share of a tile of keys.
namespace tempera::kernels::cuda {

// What is known of a row behind some of its keys; numbers are relative to the maximum.
struct RowState {
  float max = -INFINITY;
  float sum = 0;
  float below = 0;  // sum of exp(l - max) * (max - l), for the entropy
};

// A tile of keys as a warp's rows see it.
struct TileView {
  int first;
  bool hides;    // some row does not see some key of it
  bool signs;    // plain: some row's factor is not above 0
  bool entropy;  // is wanted
  const float *a_k, *a_v;
};

// x = change(column, x) for the numbers x that a lane has of half `half` of 16 rows.
template <int kTiles, class Change>
__device__ inline void change_row(float (&c)[kTiles][4], int half, Change change) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& x = c[n][half * 2 + e];
      x = change(n * 8 + lane % 4 * 2 + e, x);
    }
}

// c: products to logits, in units of powers, of half `half` of a tile's rows. Returns what they
// still have to be multiplied by, above 0.
template <bool kPlain, class T, int kTiles>
__device__ inline float finish_logits(const Problem<T>& p, const QueryRow& row,
                                      const TileView& tile, float factor, int half,
                                      float (&c)[kTiles][4]) {
  const int begin = row.begin - tile.first, end = row.end - tile.first;
  const auto each = [&](auto change) { change_row(c, half, change); };
  if constexpr (kPlain) {
    if (tile.signs) {
      each([&](int, float x) { return x * factor; });
      factor = 1;
    }
    if (tile.hides)
      each([&](int column, float x) { return column >= begin && column < end ? x : -INFINITY; });
    return factor;
  } else {
    // Whether the call has a feature is asked once for all elements: they are computed side by
    // side.
    const auto inside = [&](int column) { return column >= begin && column < end; };
    if (p.a_k.data)
      each([&](int column, float x) { return x * (factor * tile.a_k[column]); });
    else
      each([&](int, float x) { return x * factor; });
    if (p.bias.data)
      each([&](int column, float x) {
        return inside(column) ? x + row.bias[tile.first + column] : x;
      });
    if (p.cap > 0) each([&](int, float x) { return p.cap * capped_tanh(p, x); });
    const float post = row.post * kUnit<T>;
    if (tile.hides)
      each([&](int column, float x) { return inside(column) ? x * post : -INFINITY; });
    else
      each([&](int, float x) { return x * post; });
    return 1;
  }
}

// One row's share of a tile: products in, weights of the values out. factor: the row's own, of
// plain rows in units of powers. Returns what the row's sums shrink by.
template <bool kPlain, class T, int kTiles>
__device__ inline float update_row(const Problem<T>& p, const QueryRow& row, RowState& s,
                                   const TileView& tile, float factor, int half,
                                   float (&c)[kTiles][4]) {
  factor = finish_logits<kPlain>(p, row, tile, factor, half, c);
  float top = -INFINITY;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) top = fmaxf(top, fmaxf(c[n][half * 2], c[n][half * 2 + 1]));
  const float max = fmaxf(s.max, max_quad(top) * factor);
  const float shift = max == -INFINITY ? 0 : max;
  const float shrink = power_of<T>(s.max - shift);
  if (!kPlain && tile.entropy && s.max > -INFINITY)
    s.below = shrink * (s.below + (max - s.max) * s.sum);
  s.max = max;
  float sum = 0;
  const auto each = [&](auto change) { change_row(c, half, change); };
  if (!kPlain && tile.entropy)
    each([&](int, float x) {
      const float above = fmaf(x, factor, -shift), weight = power_of<T>(above);
      sum += weight;
      s.below = weight > 0 ? fmaf(weight, -above, s.below) : s.below;
      return weight;
    });
  else
    each([&](int, float x) {
      const float weight = power_of<T>(fmaf(x, factor, -shift));
      sum += weight;
      return weight;
    });
  s.sum = fmaf(s.sum, shrink, sum);
  if constexpr (!kPlain) {
    if (p.threshold > 0)
      each([&](int column, float x) { return x * kept(p, row.dropout, tile.first + column); });
    if (p.a_v.data)  // that of a hidden key may be anything
      each([&](int column, float x) { return x == 0 ? 0 : x * tile.a_v[column]; });
  }
  return shrink;
}

}  // namespace tempera::kernels::cuda
