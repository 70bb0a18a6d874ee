// Rows in and out of the packed scratch: conversion, scaling, transposition, and the recipe of a
// row scale.
#if defined(TEMPERA_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_ROWS_INL_H_
#undef TEMPERA_KERNELS_CPU_ROWS_INL_H_
#else
#define TEMPERA_KERNELS_CPU_ROWS_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "tempera/kernels/cpu/layout.h"
#include "tempera/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// The first `count` elements, zeros behind them; reads nothing else.
template <class T>
HWY_INLINE Vec load_some(const T* p, int64_t count) {
  if (count >= kLanes) return load(p);
  T part[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) part[i] = p[i];
  return load(part);
}

template <class T>
HWY_INLINE void store_some(Vec x, T* p, int64_t count) {
  if (count >= kLanes) return store(x, p);
  T part[kLanes];
  store(x, part);
  for (int64_t i = 0; i < count; ++i) p[i] = part[i];
}

// to[0, size) = factor * from[0, size), zeros up to a multiple of kAlign.
template <class T>
HWY_INLINE void pack_row(const T* from, int64_t size, float factor, float* to) {
  const Vec f = set(factor);
  int64_t c = 0;
  for (; c + kLanes <= size; c += kLanes) store(hn::Mul(f, load(from + c)), to + c);
  if (c < size) {
    store(hn::Mul(f, load_some(from + c, size - c)), to + c);
    c += kLanes;
  }
  for (const int64_t padded = round_up(size, kAlign); c < padded; c += kLanes)
    store(hn::Zero(F32()), to + c);
}

// to[i] = factor * from[i] + (add ? to[i] : 0), stored as T.
template <class T>
HWY_INLINE void unpack_row(const float* from, int64_t size, float factor, T* to) {
  const Vec f = set(factor);
  for (int64_t c = 0; c < size; c += kLanes)
    store_some(hn::Mul(f, load(from + c)), to + c, size - c);
}

// to[i * to_stride] = factor * <packed row i, row>, each as if it were alone: the row is read once.
template <int kRows, class T>
HWY_INLINE void dot_each(const float* packed, int64_t stride, const T* row, int64_t size,
                         float factor, float* to, int64_t to_stride) {
  // Two chains: an addition waits for the one before.
  Vec even[kRows], odd[kRows];
  for (int i = 0; i < kRows; ++i) even[i] = odd[i] = hn::Zero(F32());
  int64_t c = 0;
  for (; c + 2 * kLanes <= size; c += 2 * kLanes) {
    const Vec first = load(row + c), second = load(row + c + kLanes);
    for (int i = 0; i < kRows; ++i) {
      even[i] = hn::MulAdd(load(packed + i * stride + c), first, even[i]);
      odd[i] = hn::MulAdd(load(packed + i * stride + c + kLanes), second, odd[i]);
    }
  }
  for (; c < size; c += kLanes) {
    const Vec rest = load_some(row + c, size - c);
    for (int i = 0; i < kRows; ++i)
      even[i] = hn::MulAdd(load(packed + i * stride + c), rest, even[i]);
  }
  for (int i = 0; i < kRows; ++i) to[i * to_stride] = factor * sum_lanes(hn::Add(even[i], odd[i]));
}

template <class T>
HWY_INLINE float dot_rows(const float* packed, const T* row, int64_t size) {
  float dot;
  dot_each<1>(packed, 0, row, size, 1.0F, &dot, 0);
  return dot;
}

// rows x columns with `stride` -> panels of kPanel rows as columns: to[panel][column][row in
// panel]. `rows` is padded with zeros to a multiple of kAlign, which covers the vectors that the
// products read.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_panels(const float* from, int64_t stride, int64_t rows, int64_t columns,
                                 float* to) {
  for (int64_t r = 0; r < round_up(rows, kAlign); ++r)
    for (int64_t c = 0; c < columns; ++c)
      to[r / kPanel * kPanel * columns + c * kPanel + r % kPanel] =
          r < rows ? from[r * stride + c] : 0.0F;
}
#else
HWY_INLINE void transpose_panels(const float* from, int64_t stride, int64_t rows, int64_t columns,
                                 float* to) {
  const hn::CappedTag<float, 4> quad;
  alignas(64) float block[4][kLanes];
  for (int64_t r = 0; r < round_up(rows, kAlign); r += 4) {
    float* panel = to + r / kPanel * kPanel * columns + r % kPanel;
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vec x[4];
      for (int64_t i = 0; i < 4; ++i)
        x[i] = r + i < rows ? load_some(from + (r + i) * stride + c, columns - c) : hn::Zero(F32());
      const F32 d;
      // Transposes each 4 x 4 block of the four vectors: block b of vector i is then column 4 b +
      // i.
      const Vec low01 = hn::InterleaveLower(d, x[0], x[1]),
                high01 = hn::InterleaveUpper(d, x[0], x[1]);
      const Vec low23 = hn::InterleaveLower(d, x[2], x[3]),
                high23 = hn::InterleaveUpper(d, x[2], x[3]);
      const hn::Repartition<double, F32> pairs;
      const auto pair = [&](Vec v) { return hn::BitCast(pairs, v); };
      store(hn::BitCast(d, hn::InterleaveLower(pairs, pair(low01), pair(low23))), block[0]);
      store(hn::BitCast(d, hn::InterleaveUpper(pairs, pair(low01), pair(low23))), block[1]);
      store(hn::BitCast(d, hn::InterleaveLower(pairs, pair(high01), pair(high23))), block[2]);
      store(hn::BitCast(d, hn::InterleaveUpper(pairs, pair(high01), pair(high23))), block[3]);
      const int64_t width = std::min<int64_t>(kLanes, columns - c);
      for (int64_t i = 0; i < width; ++i)
        hn::StoreU(hn::LoadU(quad, block[i % 4] + i / 4 * 4), quad, panel + (c + i) * kPanel);
    }
  }
}
#endif

// One row's recipe, taken apart as the backward pass needs it: value = s * (c + token + g * log n).
struct RecipeRow {
  float s, c, token, g, log_n;
  float inner() const { return c + token + g * log_n; }
  float value() const { return s * inner(); }
};

template <class T>
HWY_INLINE float token_dot(const Recipe<T>& recipe, int64_t b, int64_t h, int64_t row) {
  const T* source = recipe.source.at(b, h, row);
  const float* w = recipe.w + h * recipe.size;
  Vec sum = hn::Zero(F32());
  for (int64_t c = 0; c < recipe.size; c += kLanes) {
    const int64_t left = recipe.size - c;
    sum = hn::MulAdd(gelu(load_some(source + c, left)), load_some(w + c, left), sum);
  }
  return sum_lanes(sum);
}

template <class T>
HWY_INLINE RecipeRow recipe_row(const Recipe<T>& recipe, int64_t b, int64_t h, int64_t row,
                                int64_t rows, float token) {
  return {recipe.s ? recipe.s[h] : 1.0F, recipe.c ? recipe.c[h] : 0.0F, token,
          recipe.g ? recipe.g[h] : 0.0F, recipe.g ? recipe.log_n[b * rows + row] : 0.0F};
}

// Fills the scratch with a for rows [first, first + count) of one head.
template <class T>
HWY_INLINE void evaluate_scale(const Scale<T>& scale, int64_t b, int64_t h, int64_t first,
                               int64_t count, int64_t all_rows, const ScaleScratch& to,
                               int64_t at) {
  const Recipe<T>& recipe = scale.recipe;
  float* token = to.tanh + at;
  if (recipe.w) {
    for (int64_t r = 0; r < count; ++r) token[r] = token_dot(recipe, b, h, first + r);
    for (int64_t r = 0; r < count; r += kLanes)
      store_some(tanh(load_some(token + r, count - r)), token + r, count - r);
  } else {
    std::fill_n(token, count, 0.0F);
  }
  for (int64_t r = 0; r < count; ++r) {
    const float given = scale.rows ? *scale.rows.at(b, h, first + r) : 1.0F;
    to.total[at + r] = recipe.active()
                           ? given * recipe_row(recipe, b, h, first + r, all_rows, token[r]).value()
                           : given;
  }
}

template <class T>
struct ScaleBackward {
  const Scale<T>& scale;
  const ScaleGradient<T>& gradient;
  int64_t all_rows;
  float* sums;  // a part of RecipeSums; absent where nothing is summed

  // d_a is the gradient of the row's whole scale. The gradient of the source goes to d_packed (the
  // operand's own gradient, already multiplied out) where the source is the operand, else to the
  // source's own place.
  HWY_INLINE void row(int64_t b, int64_t h, int64_t r, float d_a, float token,
                      bool source_is_operand, float* d_packed) const {
    const Recipe<T>& recipe = scale.recipe;
    const RecipeRow parts = recipe_row(recipe, b, h, r, all_rows, token);
    const float given = scale.rows ? *scale.rows.at(b, h, r) : 1.0F;
    if (gradient.rows) *gradient.rows.at(b, h, r) = recipe.active() ? d_a * parts.value() : d_a;
    if (!recipe.active()) return;
    const float d_value = d_a * given;
    const float d_inner = d_value * parts.s;
    RecipeScalars& scalars = recipe_scalars(sums, recipe.size);
    scalars.g += static_cast<double>(d_inner * parts.log_n);
    scalars.c += static_cast<double>(d_inner);
    scalars.s += static_cast<double>(d_value * parts.inner());
    if (recipe.w) token_row(b, h, r, d_inner * (1 - token * token), source_is_operand, d_packed);
  }

 private:
  HWY_INLINE void token_row(int64_t b, int64_t h, int64_t r, float d_dot, bool source_is_operand,
                            float* d_packed) const {
    const Recipe<T>& recipe = scale.recipe;
    const T* source = recipe.source.at(b, h, r);
    const float* w = recipe.w + h * recipe.size;
    const Vec d = set(d_dot);
    for (int64_t c = 0; c < recipe.size; c += kLanes) {
      const int64_t left = recipe.size - c;
      const Vec x = load_some(source + c, left);
      const Normal n = normal(x);
      store(hn::MulAdd(d, hn::Mul(x, n.cdf), load(sums + c)), sums + c);
      const Vec slope = hn::MulAdd(x, n.density, n.cdf);
      const Vec d_source = hn::Mul(hn::Mul(d, load_some(w + c, left)), slope);
      if (source_is_operand) {
        store(hn::Add(load(d_packed + c), d_source), d_packed + c);
      } else if (gradient.source) {
        store_some(d_source, gradient.source.at(b, h, r) + c, left);
      }
    }
  }
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
