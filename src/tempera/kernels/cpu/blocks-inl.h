// Blocks of few bits as bytes and factors, for four rows of the matrix at a time.
#if defined(TEMPERA_KERNELS_CPU_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_BLOCKS_INL_H_
#undef TEMPERA_KERNELS_CPU_BLOCKS_INL_H_
#else
#define TEMPERA_KERNELS_CPU_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tempera/kernels/blocks.h"
#include "tempera/kernels/cpu/blocks_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F4 = hn::FixedTag<float, 4>;
using I4 = hn::FixedTag<int32_t, 4>;
using U4 = hn::FixedTag<uint32_t, 4>;
using Bytes = hn::FixedTag<uint8_t, 16>;
#if HWY_TARGET == HWY_AVX3_DL
using WideBytes = hn::FixedTag<uint8_t, 32>;
#endif
using V4 = hn::Vec<F4>;
using VBytes = hn::Vec<Bytes>;

// Rows of the matrix that are worked on together, one in each lane of factors and sums.
inline constexpr int64_t kOutputs = 4;

// The same block of four rows of the matrix.
using FourBlocks = const uint8_t* const*;

template <class T>
HWY_INLINE T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// A 16- or 32-bit number of each row. Through general registers: loads of a vector that was stored
// in parts would wait.
HWY_INLINE V4 halves_at(FourBlocks blocks, int64_t offset) {
  uint64_t bits = 0;
  for (int64_t o = 0; o < kOutputs; ++o)
    bits |= static_cast<uint64_t>(read<uint16_t>(blocks[o] + offset)) << (16 * o);
  const hn::FixedTag<uint64_t, 1> whole;
  const hn::FixedTag<hwy::float16_t, 4> half;
  return hn::PromoteTo(F4(), hn::BitCast(half, hn::Set(whole, bits)));
}

HWY_INLINE hn::Vec<U4> words_at(FourBlocks blocks, int64_t offset) {
  const auto pair = [&](int64_t o) HWY_ATTR {
    return hn::Set(hn::FixedTag<uint64_t, 2>(),
                   read<uint32_t>(blocks[o] + offset) |
                       static_cast<uint64_t>(read<uint32_t>(blocks[o + 1] + offset)) << 32);
  };
  return hn::BitCast(U4(), hn::InterleaveLower(pair(0), pair(2)));
}

// The lower 16 bits of each word as a half.
HWY_INLINE V4 lower_halves(hn::Vec<U4> words) {
  const auto halves = hn::TruncateTo(hn::FixedTag<uint16_t, 4>(), words);
  return hn::PromoteTo(F4(), hn::BitCast(hn::FixedTag<hwy::float16_t, 4>(), halves));
}

// Numbers 0 to 31 of a group, or 0 to 15 of one of 16, which has no upper part.
struct Numbers {
  VBytes lower, upper;
};

HWY_INLINE VBytes bytes_at(const uint8_t* from) { return hn::LoadU(Bytes(), from); }
HWY_INLINE VBytes low_bits(VBytes x) { return hn::And(x, hn::Set(Bytes(), 15)); }
template <int bits>
HWY_INLINE VBytes shifted_right(VBytes x) {
  const hn::Repartition<uint16_t, Bytes> wide;
  return hn::BitCast(Bytes(), hn::ShiftRight<bits>(hn::BitCast(wide, x)));
}
HWY_INLINE VBytes high_bits(VBytes x) { return low_bits(shifted_right<4>(x)); }

// 16 where the element's bit is set in 16 bits.
HWY_INLINE VBytes fifth_bits(uint16_t bits) {
  alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                   1, 2, 4, 8, 16, 32, 64, 128};
  const auto low = hn::Set(Bytes(), static_cast<uint8_t>(bits));
  const auto high = hn::Set(Bytes(), static_cast<uint8_t>(bits >> 8));
  const VBytes bit = hn::Load(Bytes(), kBit);
  const VBytes mine = hn::And(hn::ConcatUpperLower(Bytes(), high, low), bit);
  return hn::And(hn::VecFromMask(Bytes(), hn::Eq(mine, bit)), hn::Set(Bytes(), 16));
}

template <int bits, bool minima>
struct SmallBlocks {
  static constexpr int64_t kElements = 32, kGroupElements = 32;
  static constexpr int64_t kHeader = minima ? 4 : 2;
  static constexpr int64_t kBytes = kHeader + 4 * bits;
  static constexpr bool kHasMinima = minima;
  static constexpr int kOffset = minima ? 0 : 1 << (bits - 1);

  struct Factors {
    explicit HWY_INLINE Factors(FourBlocks blocks) {
      if constexpr (minima) {
        const auto both = words_at(blocks, 0);
        d = lower_halves(both);
        m = lower_halves(hn::ShiftRight<16>(both));
      } else {
        d = halves_at(blocks, 0);
        m = hn::Zero(F4());
      }
    }
    HWY_INLINE V4 scale(int64_t) const { return d; }
    HWY_INLINE V4 minimum(int64_t) const { return m; }
    V4 d, m;
  };

#if HWY_TARGET == HWY_AVX3_DL
  // The same in one vector.
  static HWY_INLINE hn::Vec<WideBytes> wide_numbers(const uint8_t* block) {
    const WideBytes wide;
    if constexpr (bits == 8) {
      return hn::Xor(hn::LoadU(wide, block + 2), hn::Set(wide, 0x80));
    } else {
      const hn::Repartition<uint16_t, WideBytes> pairs;
      const auto both = hn::BitCast(pairs, hn::LoadDup128(wide, block + kBytes - 16));
      const auto shift = hn::ConcatUpperLower(pairs, hn::Set(pairs, 4), hn::Zero(pairs));
      const auto low = hn::And(hn::BitCast(wide, hn::Shr(both, shift)), hn::Set(wide, 15));
      if constexpr (bits == 4) return low;
      const auto fifth = hn::LoadMaskBits(wide, block + kHeader);
      return hn::Or(low, hn::IfThenElseZero(fifth, hn::Set(wide, 16)));
    }
  }
  // Of two blocks, one behind the other.
  static HWY_INLINE hn::Vec<hn::FixedTag<uint8_t, 64>> wide_numbers(const uint8_t* first,
                                                                    const uint8_t* second) {
    const hn::FixedTag<uint8_t, 64> both;
    if constexpr (bits == 4) {
      const WideBytes wide;
      const hn::Repartition<uint64_t, decltype(both)> words;
      const auto packed = hn::Combine(both, hn::LoadDup128(wide, second + kBytes - 16),
                                      hn::LoadDup128(wide, first + kBytes - 16));
      // What moves in from the byte above is masked off.
      alignas(64) static constexpr uint64_t kShift[8] = {0, 0, 4, 4, 0, 0, 4, 4};
      const auto shifted = hn::Shr(hn::BitCast(words, packed), hn::Load(words, kShift));
      return hn::And(hn::BitCast(both, shifted), hn::Set(both, 15));
    } else {
      return hn::Combine(both, wide_numbers(second), wide_numbers(first));
    }
  }
#endif

  static HWY_INLINE Numbers numbers(const uint8_t* block, int64_t) {
    if constexpr (bits == 8) {
      const VBytes sign = hn::Set(Bytes(), 0x80);
      return {hn::Xor(bytes_at(block + 2), sign), hn::Xor(bytes_at(block + 18), sign)};
    } else {
      const VBytes both = bytes_at(block + kBytes - 16);
      Numbers q{low_bits(both), high_bits(both)};
      if constexpr (bits == 5) {
        q.lower = hn::Or(q.lower, fifth_bits(read<uint16_t>(block + kHeader)));
        q.upper = hn::Or(q.upper, fifth_bits(read<uint16_t>(block + kHeader + 2)));
      }
      return q;
    }
  }
};

// Byte `index` of each word as a float.
HWY_INLINE V4 byte_of(hn::Vec<U4> words, int64_t index) {
  const auto byte =
      hn::And(hn::ShiftRightSame(words, static_cast<int>(8 * index)), hn::Set(U4(), 255));
  return hn::ConvertTo(F4(), hn::BitCast(I4(), byte));
}

// Twelve bytes hold a 6-bit scale and minimum for each of eight groups.
template <int bits>
struct LargeBlocks {
  static constexpr int64_t kElements = 256, kGroupElements = 32;
  static constexpr int64_t kBytes = 16 + 32 * bits;
  static constexpr bool kHasMinima = true;
  static constexpr int kOffset = 0;

  struct Factors {
    explicit HWY_INLINE Factors(FourBlocks blocks)
        : d(halves_at(blocks, 0)), m(hn::Neg(halves_at(blocks, 2))) {
      const auto a = words_at(blocks, 4), b = words_at(blocks, 8), c = words_at(blocks, 12);
      const auto six = hn::Set(U4(), 0x3f3f3f3fU), four = hn::Set(U4(), 0x0f0f0f0fU);
      const auto top = hn::Set(U4(), 0x30303030U);
      scales[0] = hn::And(a, six);
      minima[0] = hn::And(b, six);
      scales[1] = hn::Or(hn::And(c, four), hn::And(hn::ShiftRight<2>(a), top));
      minima[1] = hn::Or(hn::And(hn::ShiftRight<4>(c), four), hn::And(hn::ShiftRight<2>(b), top));
    }
    HWY_INLINE V4 scale(int64_t group) const {
      return hn::Mul(d, byte_of(scales[group / 4], group % 4));
    }
    HWY_INLINE V4 minimum(int64_t group) const {
      return hn::Mul(m, byte_of(minima[group / 4], group % 4));
    }
    V4 d, m;
    hn::Vec<U4> scales[2], minima[2];
  };

  static HWY_INLINE Numbers numbers(const uint8_t* block, int64_t group) {
    const uint8_t* at = block + kBytes - 128 + group / 2 * 32;
    Numbers q{bytes_at(at), bytes_at(at + 16)};
    q = group % 2 == 0 ? Numbers{low_bits(q.lower), low_bits(q.upper)}
                       : Numbers{high_bits(q.lower), high_bits(q.upper)};
    if constexpr (bits == 5) {
      const VBytes bit = hn::Set(Bytes(), static_cast<uint8_t>(1U << group));
      const VBytes sixteen = hn::Set(Bytes(), 16);
      const auto fifth = [&](int64_t offset) HWY_ATTR {
        const VBytes mine = hn::And(bytes_at(block + 16 + offset), bit);
        return hn::And(hn::VecFromMask(Bytes(), hn::Eq(mine, bit)), sixteen);
      };
      q.lower = hn::Or(q.lower, fifth(0));
      q.upper = hn::Or(q.upper, fifth(16));
    }
    return q;
  }
};

// What the loops know of a type. Its values are scale (number - kOffset) + minimum; numbers are at
// least 0. Factors holds scales, and with kHasMinima minima, of all groups of a block.
template <BlockType type>
struct Blocks : std::conditional_t<is_small(type), SmallBlocks<bits_of(type), has_minima(type)>,
                                   LargeBlocks<bits_of(type)>> {};

template <>
struct Blocks<BlockType::kQ6_K> {
  static constexpr int64_t kElements = 256, kGroupElements = 16;
  static constexpr int64_t kBytes = 210;
  static constexpr bool kHasMinima = false;
  static constexpr int kOffset = 32;

  struct Factors {
    explicit HWY_INLINE Factors(FourBlocks blocks) : d(halves_at(blocks, 208)) {
      for (int64_t i = 0; i < 4; ++i) scales[i] = words_at(blocks, 192 + 4 * i);
    }
    HWY_INLINE V4 scale(int64_t group) const {
      const auto up = hn::ShiftLeftSame(hn::BitCast(I4(), scales[group / 4]),
                                        static_cast<int>(24 - 8 * (group % 4)));
      return hn::Mul(d, hn::ConvertTo(F4(), hn::ShiftRight<24>(up)));
    }
    HWY_INLINE V4 minimum(int64_t) const { return hn::Zero(F4()); }
    V4 d;
    hn::Vec<U4> scales[4];
  };

  // Each half of the block has its lower four bits in 64 bytes, its upper two in 32.
  static HWY_INLINE Numbers numbers(const uint8_t* block, int64_t group) {
    const int64_t half = group / 8, part = group % 8 / 2, place = group % 2 * 16;
    const VBytes low = bytes_at(block + 64 * half + part % 2 * 32 + place);
    const VBytes high = bytes_at(block + 128 + 32 * half + place);
    const hn::Repartition<uint16_t, Bytes> wide;
    const auto two = hn::BitCast(
        Bytes(), hn::ShiftRightSame(hn::BitCast(wide, high), static_cast<int>(2 * part)));
    const auto top = hn::BitCast(
        Bytes(), hn::ShiftLeft<4>(hn::BitCast(wide, hn::And(two, hn::Set(Bytes(), 3)))));
    return {hn::Or(part < 2 ? low_bits(low) : high_bits(low), top), hn::Zero(Bytes())};
  }
};

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
