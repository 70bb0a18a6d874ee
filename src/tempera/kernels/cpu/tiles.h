#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tempera/kernels/mask.h"

// Geometry of the tiles, the same for every instruction set.
namespace tempera::kernels::cpu {

inline constexpr int64_t kAlign = 16;         // floats in a cache line; the widest vector
inline constexpr int64_t kPanel = 64;         // keys in a panel of transposed rows
inline constexpr int64_t kQueryTile = 96;     // query rows worked on at once
inline constexpr int64_t kForwardKeys = 256;  // keys worked on at once in the forward pass
inline constexpr int64_t kBackwardKeys = 128;

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Floats between rows of a packed matrix with `columns` columns. A multiple of 512 bytes would map
// the rows of a tile to a few sets of the first-level cache, so those get one more line.
inline int64_t packed_stride(int64_t columns) {
  const int64_t padded = round_up(columns, kAlign);
  return padded % 128 == 0 ? padded + kAlign : padded;
}

// Up to six consecutive rows of a matrix product and the span of the other dimension that any of
// them needs.
struct Strip {
  int row;
  int rows;  // 6, 4, 2 or 1: the heights that the micro-kernel has
  int64_t begin;
  int64_t end;
};

inline constexpr int kStripRows = 6;
inline int strip_height(int64_t left) { return left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }

class Strips {
 public:
  // spans(row) is the span of one row; rows that need nothing make no strip.
  template <class Spans>
  static Strips of_rows(int64_t rows, const Spans& spans) {
    Strips strips;
    for (int64_t row = 0; row < rows;) {
      const int height = strip_height(rows - row);
      KeyRange all{INT64_MAX, 0};
      for (int64_t r = row; r < row + height; ++r) {
        const KeyRange span = spans(r);
        if (span.size() == 0) continue;
        all.begin = std::min(all.begin, span.begin);
        all.end = std::max(all.end, span.end);
      }
      if (all.begin < all.end) strips.add({static_cast<int>(row), height, all.begin, all.end});
      row += height;
    }
    return strips;
  }

  // Every row needs all of [0, width).
  static Strips full(int64_t rows, int64_t width) {
    return of_rows(rows, [width](int64_t) { return KeyRange{0, width}; });
  }

  std::span<const Strip> list() const { return {strips_.data(), static_cast<size_t>(count_)}; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

 private:
  void add(const Strip& strip) {
    strips_[static_cast<size_t>(count_++)] = strip;
    begin_ = std::min(begin_, strip.begin);
    end_ = std::max(end_, strip.end);
  }

  static constexpr int64_t kMost =
      std::max(kQueryTile, std::max(kForwardKeys, kBackwardKeys)) / kStripRows + 3;
  std::array<Strip, static_cast<size_t>(kMost)> strips_;
  int count_ = 0;
  int64_t begin_ = INT64_MAX;
  int64_t end_ = 0;
};

// The spans of the rows of one query tile, relative to a block of keys.
struct TileSpans {
  std::array<KeyRange, static_cast<size_t>(kQueryTile)> absolute;
  int64_t rows = 0;
  KeyRange all;     // that any row sees
  KeyRange common;  // that every row sees

  void set(const Mask& mask, const Shape& shape, int64_t b, int64_t first, int64_t count) {
    rows = count;
    all = {INT64_MAX, 0};
    common = {0, INT64_MAX};
    for (int64_t r = 0; r < count; ++r) {
      const KeyRange span = visible_keys(mask, shape, b, first + r);
      absolute[static_cast<size_t>(r)] = span;
      common.begin = std::max(common.begin, span.begin);
      common.end = std::min(common.end, span.end);
      if (span.size() == 0) continue;
      all.begin = std::min(all.begin, span.begin);
      all.end = std::max(all.end, span.end);
    }
  }

  KeyRange row(int64_t r, int64_t key, int64_t width) const {
    const KeyRange& span = absolute[static_cast<size_t>(r)];
    const int64_t begin = std::clamp<int64_t>(span.begin - key, 0, width);
    return {begin, std::clamp<int64_t>(span.end - key, begin, width)};
  }

  bool overlaps(int64_t key, int64_t width) const {
    return all.begin < key + width && key < all.end;
  }
  bool covers(int64_t key, int64_t width) const {
    return common.begin <= key && key + width <= common.end;
  }

  Strips strips(int64_t key, int64_t width) const {
    if (covers(key, width)) return Strips::full(rows, width);
    return Strips::of_rows(rows, [&](int64_t r) { return row(r, key, width); });
  }

  // The same seen from the keys: strips of keys, each with the query rows that see one of them.
  Strips key_strips(int64_t key, int64_t width) const {
    if (covers(key, width)) return Strips::full(width, rows);
    return Strips::of_rows(width, [&](int64_t k) {
      KeyRange seen{INT64_MAX, 0};
      for (int64_t r = 0; r < rows; ++r) {
        const KeyRange span = row(r, key, width);
        if (k < span.begin || k >= span.end) continue;
        seen.begin = std::min(seen.begin, r);
        seen.end = r + 1;
      }
      return seen.begin < seen.end ? seen : KeyRange{};
    });
  }
};

}  // namespace tempera::kernels::cpu
