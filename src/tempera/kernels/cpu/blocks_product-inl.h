// Rows in 8 bits times blocks of few bits. Every result is one sum over the groups in order,
// whatever is computed beside it: few rows and many give the same bits.
#if defined(TEMPERA_KERNELS_CPU_BLOCKS_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_BLOCKS_PRODUCT_INL_H_
#undef TEMPERA_KERNELS_CPU_BLOCKS_PRODUCT_INL_H_
#else
#define TEMPERA_KERNELS_CPU_BLOCKS_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "tempera/kernels/cpu/blocks-inl.h"
#include "tempera/kernels/cpu/blocks_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Rows of x that share the unpacking of a block.
inline constexpr int kTileRows = 4;

using Sums = hn::CappedTag<int32_t, 8>;
using VSums = hn::Vec<Sums>;

#if HWY_TARGET == HWY_AVX3_DL
// sums += the four products of bytes in each lane, those of q without a sign. Highway's flags for
// this target lack the ones that the compiler's function of this name wants.
template <class Sum, class Unsigned, class Signed>
HWY_INLINE Sum add_products(Sum sums, Unsigned q, Signed x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(q.raw), "v"(x.raw));
  return sums;
}
#endif

// The products of a group's numbers with those of a row, in some lanes that make up the sum.
#if HWY_TARGET == HWY_AVX3_DL
template <class Type>
struct Operand {
  HWY_INLINE Operand(const uint8_t* block, int64_t group) : numbers(numbers_of(block, group)) {}
  static HWY_INLINE hn::Vec<WideBytes> numbers_of(const uint8_t* block, int64_t group) {
    if constexpr (Type::kElements == kGroup) {
      return Type::wide_numbers(block);
    } else {
      const Numbers q = Type::numbers(block, group);
      return hn::Combine(WideBytes(), q.upper, q.lower);
    }
  }
  HWY_INLINE VSums dot(const int8_t* x) const {
    const auto row = hn::LoadU(hn::FixedTag<int8_t, 32>(), x);
    return add_products(hn::Zero(Sums()), numbers, row);
  }
  // A group of 16 has zeros as its upper half; nothing behind the row is read.
  HWY_INLINE VSums dot_of_half(const int8_t* x) const {
    const auto row =
        hn::ZeroExtendVector(hn::FixedTag<int8_t, 32>(), hn::LoadU(hn::FixedTag<int8_t, 16>(), x));
    return add_products(hn::Zero(Sums()), numbers, row);
  }
  hn::Vec<WideBytes> numbers;
};
#else
template <class Type>
struct Operand {
  using Wide = hn::Repartition<int16_t, Sums>;
  static constexpr int64_t kPiece = static_cast<int64_t>(hn::MaxLanes(Wide()));
  static constexpr int64_t kPieces = Type::kGroupElements / kPiece;

  HWY_INLINE Operand(const uint8_t* block, int64_t group) {
    const Numbers q = Type::numbers(block, group);
    widen(Wide(), q.lower, pieces);
    if constexpr (Type::kGroupElements == 32) widen(Wide(), q.upper, pieces + kPieces / 2);
  }
  template <class Tag>
  static HWY_INLINE void widen(Tag tag, VBytes q, hn::Vec<Tag>* to) {
    if constexpr (hn::MaxLanes(Tag()) == 16) {
      to[0] = hn::PromoteTo(tag, q);
    } else {
      to[0] = hn::PromoteTo(tag, hn::LowerHalf(q));
      to[1] = hn::PromoteTo(tag, hn::UpperHalf(hn::Half<Bytes>(), q));
    }
  }
  HWY_INLINE VSums dot(const int8_t* x) const {
    VSums sum = hn::Zero(Sums()), none = hn::Zero(Sums());
    for (int64_t i = 0; i < kPieces; ++i) {
      const auto row = hn::PromoteTo(Wide(), hn::LoadU(hn::Rebind<int8_t, Wide>(), x + i * kPiece));
      sum = hn::ReorderWidenMulAccumulate(Sums(), pieces[i], row, sum, none);
    }
    return sum;
  }
  HWY_INLINE VSums dot_of_half(const int8_t* x) const { return dot(x); }
  hn::Vec<Wide> pieces[kPieces];
};
#endif

// The sums of the lanes of four vectors.
template <class Tag>
HWY_INLINE hn::Vec<I4> sums_of(Tag tag, const hn::Vec<Tag>* v) {
  const hn::Repartition<int64_t, Tag> pairs;
  const auto ab = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(tag, v[0], v[1]), hn::InterleaveUpper(tag, v[0], v[1])));
  const auto cd = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(tag, v[2], v[3]), hn::InterleaveUpper(tag, v[2], v[3])));
  const auto all = hn::Add(hn::BitCast(tag, hn::InterleaveLower(pairs, ab, cd)),
                           hn::BitCast(tag, hn::InterleaveUpper(pairs, ab, cd)));
  if constexpr (hn::MaxLanes(Tag()) == 8)
    return hn::Add(hn::LowerHalf(all), hn::UpperHalf(I4(), all));
  else
    return all;
}

// Where a group of a type finds its numbers in the row.
template <class Type>
inline constexpr bool kHasHalfGroups = Type::kGroupElements != kGroup;

template <class Type>
HWY_INLINE const int8_t* row_numbers(const QuantizedRow& row, int64_t group) {
  return kHasHalfGroups<Type> ? row.half(group) : row.groups[group].q;
}

template <class Type>
HWY_INLINE int32_t number_sum(const QuantizedRow& row, int64_t group) {
  return kHasHalfGroups<Type> ? row.half_sum(group) : row.groups[group].sum;
}

template <class Type>
HWY_INLINE float row_scale(const QuantizedRow& row, int64_t group) {
  return row.groups[kHasHalfGroups<Type> ? group / 2 : group].scale;
}

// Four rows of the matrix, from their first blocks on, times kRows rows of x.
template <class Type, int kRows>
HWY_INLINE void multiply_four(const uint8_t* const first[kOutputs], int64_t blocks,
                              const QuantizedRow* x, float* result) {
  constexpr int64_t kGroups = Type::kElements / Type::kGroupElements;
  V4 sum[kRows];
  for (V4& s : sum) s = hn::Zero(F4());
  const uint8_t* at[kOutputs];
  std::copy_n(first, kOutputs, at);
  for (int64_t block = 0; block < blocks; ++block) {
    const typename Type::Factors factors(at);
    for (int64_t g = 0; g < kGroups; ++g) {
      const int64_t group = block * kGroups + g;
      const Operand<Type> q[kOutputs] = {{at[0], g}, {at[1], g}, {at[2], g}, {at[3], g}};
      const V4 scale = factors.scale(g), minimum = factors.minimum(g);
      for (int r = 0; r < kRows; ++r) {
        const int8_t* numbers = row_numbers<Type>(x[r], group);
        VSums dots[kOutputs];
        for (int64_t o = 0; o < kOutputs; ++o)
          dots[o] = kHasHalfGroups<Type> ? q[o].dot_of_half(numbers) : q[o].dot(numbers);
        auto whole = sums_of(Sums(), dots);
        if constexpr (Type::kOffset != 0)
          whole = hn::Sub(whole, hn::Set(I4(), Type::kOffset * number_sum<Type>(x[r], group)));
        sum[r] = hn::MulAdd(hn::ConvertTo(F4(), whole),
                            hn::Mul(scale, hn::Set(F4(), row_scale<Type>(x[r], group))), sum[r]);
        if constexpr (Type::kHasMinima)
          sum[r] = hn::MulAdd(minimum, hn::Set(F4(), x[r].groups[group].scaled_sum), sum[r]);
      }
    }
    for (int64_t o = 0; o < kOutputs; ++o) {
      hwy::Prefetch(at[o] + kOutputs * blocks * Type::kBytes);
      at[o] += Type::kBytes;
    }
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], F4(), result + r * kOutputs);
}

// The four rows that begin at `output`, the last one repeated where there are fewer.
struct FourRows {
  HWY_INLINE FourRows(const uint8_t* bytes, int64_t row_bytes, int64_t output, int64_t end) {
    for (int64_t o = 0; o < kOutputs; ++o)
      first[o] = bytes + std::min(output + o, end - 1) * row_bytes;
  }
  const uint8_t* first[kOutputs];
};

#if HWY_TARGET == HWY_AVX3_DL

inline constexpr int64_t kWideOutputs = 2 * kOutputs;

// The sums of the lanes of eight halves: halves i and i + 4 are those of vector i.
HWY_INLINE hn::Vec<hn::FixedTag<int32_t, 8>> sums_of_halves(
    const hn::Vec<hn::FixedTag<int32_t, 16>>* v) {
  const hn::FixedTag<int32_t, 16> all;
  const hn::FixedTag<int32_t, 8> half;
  const hn::Repartition<int64_t, decltype(all)> pairs;
  const auto added = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(pairs,
                       hn::Add(hn::InterleaveLower(all, a, b), hn::InterleaveUpper(all, a, b)));
  };
  const auto ab = added(v[0], v[1]), cd = added(v[2], v[3]);
  const auto four = hn::Add(hn::BitCast(all, hn::InterleaveLower(pairs, ab, cd)),
                            hn::BitCast(all, hn::InterleaveUpper(pairs, ab, cd)));
  const auto low = hn::LowerHalf(half, four), high = hn::UpperHalf(half, four);
  return hn::Add(hn::ConcatLowerLower(half, high, low), hn::ConcatUpperUpper(half, high, low));
}

// Eight rows of the matrix, in blocks of 32, times one row of x.
template <class Type>
HWY_INLINE void multiply_eight(const uint8_t* const first[kWideOutputs], int64_t blocks,
                               const QuantizedRow& x, float* result) {
  const hn::FixedTag<float, 8> f8;
  const hn::FixedTag<int32_t, 8> i8;
  const hn::FixedTag<int32_t, 16> i16;
  const hn::FixedTag<int8_t, 32> group_bytes;
  auto sum = hn::Zero(f8);
  const uint8_t* at[kWideOutputs];
  std::copy_n(first, kWideOutputs, at);
  for (int64_t block = 0; block < blocks; ++block) {
    const typename Type::Factors low(at), high(at + kOutputs);
    const QuantizedGroup& group = x.groups[block];
    const auto numbers = hn::LoadU(group_bytes, group.q);
    const auto twice = hn::Combine(hn::FixedTag<int8_t, 64>(), numbers, numbers);
    hn::Vec<hn::FixedTag<int32_t, 16>> dots[kOutputs];
    for (int64_t o = 0; o < kOutputs; ++o)
      dots[o] = add_products(hn::Zero(i16), Type::wide_numbers(at[o], at[o + kOutputs]), twice);
    auto whole = sums_of_halves(dots);
    if constexpr (Type::kOffset != 0)
      whole = hn::Sub(whole, hn::Set(i8, Type::kOffset * group.sum));
    const auto scale = hn::Combine(f8, high.scale(0), low.scale(0));
    sum = hn::MulAdd(hn::ConvertTo(f8, whole), hn::Mul(scale, hn::Set(f8, group.scale)), sum);
    if constexpr (Type::kHasMinima)
      sum = hn::MulAdd(hn::Combine(f8, high.minimum(0), low.minimum(0)),
                       hn::Set(f8, group.scaled_sum), sum);
    // A line of the cache holds two to four blocks.
    if (block % 2 == 0)
      for (const uint8_t* row : at) hwy::Prefetch(row + kWideOutputs * blocks * Type::kBytes);
    for (const uint8_t*& row : at) row += Type::kBytes;
  }
  hn::StoreU(sum, f8, result);
}

// Sixteen rows of the matrix, each group's numbers four at a time side by side: a vector holds the
// numbers 4 k to 4 k + 3 of all sixteen, so that a sum has a lane for each.
inline constexpr int64_t kPanelOutputs = 16;
// Their sums and whole numbers fit into the registers.
inline constexpr int kPanels = 2;
inline constexpr int kPanelRows = 6;

struct BlockPanel {
  uint8_t* numbers;
  float* scale;
  float* minimum;
};

HWY_INLINE void store_quarters(const VBytes* rows, uint8_t* to) {
  const hn::Repartition<uint32_t, Bytes> words;
  const hn::Repartition<uint64_t, Bytes> pairs;
  const auto word = [&](int64_t o) HWY_ATTR { return hn::BitCast(words, rows[o]); };
  const auto lower = [&](int64_t o) HWY_ATTR {
    return hn::BitCast(pairs, hn::InterleaveLower(words, word(o), word(o + 1)));
  };
  const auto upper = [&](int64_t o) HWY_ATTR {
    return hn::BitCast(pairs, hn::InterleaveUpper(words, word(o), word(o + 1)));
  };
  const auto store = [&](auto v, int64_t k) HWY_ATTR {
    hn::Store(hn::BitCast(Bytes(), v), Bytes(), to + k * 4 * kPanelOutputs);
  };
  store(hn::InterleaveLower(pairs, lower(0), lower(2)), 0);
  store(hn::InterleaveUpper(pairs, lower(0), lower(2)), 1);
  store(hn::InterleaveLower(pairs, upper(0), upper(2)), 2);
  store(hn::InterleaveUpper(pairs, upper(0), upper(2)), 3);
}

template <class Type>
void fill_panel(const uint8_t* bytes, int64_t blocks, int64_t output, int64_t end,
                const BlockPanel& panel) {
  constexpr int64_t kGroups = Type::kElements / Type::kGroupElements;
  constexpr int64_t kGroupBytes = Type::kGroupElements * kPanelOutputs;
  for (int64_t four = 0; four < kPanelOutputs; four += kOutputs) {
    FourRows rows(bytes, blocks * Type::kBytes, std::min(output + four, end - 1), end);
    for (int64_t block = 0; block < blocks; ++block) {
      const typename Type::Factors factors(rows.first);
      for (int64_t g = 0; g < kGroups; ++g) {
        const int64_t group = block * kGroups + g;
        VBytes lower[kOutputs], upper[kOutputs];
        for (int64_t o = 0; o < kOutputs; ++o) {
          const Numbers q = Type::numbers(rows.first[o], g);
          lower[o] = q.lower;
          upper[o] = q.upper;
        }
        uint8_t* to = panel.numbers + group * kGroupBytes + 4 * four;
        store_quarters(lower, to);
        if constexpr (Type::kGroupElements == 32) store_quarters(upper, to + 16 * kPanelOutputs);
        hn::Store(factors.scale(g), F4(), panel.scale + group * kPanelOutputs + four);
        if constexpr (Type::kHasMinima)
          hn::Store(factors.minimum(g), F4(), panel.minimum + group * kPanelOutputs + four);
      }
      for (const uint8_t*& first : rows.first) first += Type::kBytes;
    }
  }
}

// Rows of x times panels that lie one behind the other. A number of x is spread over a vector once
// for all of the panels.
template <class Type, int kRows, int kPanels>
void multiply_panels(const BlockPanel* panels, int64_t groups, const QuantizedRow* x, float* y) {
  constexpr int64_t kQuarters = Type::kGroupElements / 4;
  using F16 = hn::FixedTag<float, 16>;
  using I16 = hn::FixedTag<int32_t, 16>;
  hn::Vec<F16> sum[kRows][kPanels];
  for (auto& row : sum)
    for (auto& s : row) s = hn::Zero(F16());
  for (int64_t group = 0; group < groups; ++group) {
    hn::Vec<I16> whole[kRows][kPanels];
    for (int r = 0; r < kRows; ++r)
      for (auto& w : whole[r]) w = hn::Set(I16(), -Type::kOffset * number_sum<Type>(x[r], group));
    const int64_t at = group * Type::kGroupElements * kPanelOutputs;
    HWY_UNROLL(8)
    for (int64_t k = 0; k < kQuarters; ++k) {
      hn::Vec<hn::FixedTag<uint8_t, 64>> q[kPanels];
      for (int p = 0; p < kPanels; ++p)
        q[p] =
            hn::Load(hn::FixedTag<uint8_t, 64>(), panels[p].numbers + at + k * 4 * kPanelOutputs);
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        std::memcpy(&four, row_numbers<Type>(x[r], group) + 4 * k, sizeof(four));
        const auto spread = hn::Set(I16(), four);
        for (int p = 0; p < kPanels; ++p) whole[r][p] = add_products(whole[r][p], q[p], spread);
      }
    }
    for (int p = 0; p < kPanels; ++p) {
      const auto scale = hn::Load(F16(), panels[p].scale + group * kPanelOutputs);
      for (int r = 0; r < kRows; ++r) {
        auto& s = sum[r][p];
        s = hn::MulAdd(hn::ConvertTo(F16(), whole[r][p]),
                       hn::Mul(scale, hn::Set(F16(), row_scale<Type>(x[r], group))), s);
        if constexpr (Type::kHasMinima)
          s = hn::MulAdd(hn::Load(F16(), panels[p].minimum + group * kPanelOutputs),
                         hn::Set(F16(), x[r].groups[group].scaled_sum), s);
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p)
      hn::StoreU(sum[r][p], F16(), y + (r * kPanels + p) * kPanelOutputs);
}

#endif

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
