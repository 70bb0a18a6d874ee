#include <algorithm>
#include <array>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/io/float_bits.h"
#include "tempera/io/gguf_blocks.h"

// Every product and sum is rounded by itself, for fused ones give other bits than the format's
// other readers have; the build compiles this file with -ffp-contract=off.

namespace tempera::io {
namespace {

float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return float_of_half(bits);
}

// How many elements and bytes a block of a type has, and how its elements are found.
template <GgmlType type>
struct Block;

template <>
struct Block<GgmlType::kF32> {
  static constexpr size_t kBytes = 4, kElements = 1;
  static void convert(const uint8_t* in, float* out) { std::memcpy(out, in, kBytes); }
};

template <>
struct Block<GgmlType::kF16> {
  static constexpr size_t kBytes = 2, kElements = 1;
  static void convert(const uint8_t* in, float* out) { *out = half_at(in); }
};

template <>
struct Block<GgmlType::kBF16> {
  static constexpr size_t kBytes = 2, kElements = 1;
  static void convert(const uint8_t* in, float* out) {
    uint16_t bits;
    std::memcpy(&bits, in, sizeof(bits));
    *out = float_of_bfloat16(bits);
  }
};

// Blocks of 32: a scale d, where there is one a minimum m, fifth bits, then in each byte the lower
// bits of elements i and i + 16.
constexpr size_t kSmall = 32;

template <>
struct Block<GgmlType::kQ8_0> {
  static constexpr size_t kBytes = 34, kElements = kSmall;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const float d = half_at(in);
    for (size_t i = 0; i < kSmall; ++i)
      out[i] = d * static_cast<float>(static_cast<int8_t>(in[2 + i]));
  }
};

template <>
struct Block<GgmlType::kQ4_0> {
  static constexpr size_t kBytes = 18, kElements = kSmall;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const float d = half_at(in);
    const uint8_t* q = in + 2;
    for (size_t i = 0; i < 16; ++i) out[i] = d * static_cast<float>((q[i] & 15) - 8);
    for (size_t i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>((q[i] >> 4) - 8);
  }
};

template <>
struct Block<GgmlType::kQ4_1> {
  static constexpr size_t kBytes = 20, kElements = kSmall;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const float d = half_at(in), m = half_at(in + 2);
    const uint8_t* q = in + 4;
    for (size_t i = 0; i < 16; ++i) out[i] = d * static_cast<float>(q[i] & 15) + m;
    for (size_t i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(q[i] >> 4) + m;
  }
};

// 16 where the bit of element i is set. By a comparison with a mask: vectors of the baseline
// processor cannot shift each element by a count of its own.
class FifthBits {
 public:
  explicit FifthBits(const uint8_t* in) { std::memcpy(&bits_, in, sizeof(bits_)); }
  int operator[](size_t i) const { return (bits_ & kMasks[i]) != 0 ? 16 : 0; }

 private:
  static constexpr std::array<uint32_t, kSmall> kMasks = [] {
    std::array<uint32_t, kSmall> masks;
    for (size_t i = 0; i < kSmall; ++i) masks[i] = 1U << i;
    return masks;
  }();
  uint32_t bits_;
};

template <>
struct Block<GgmlType::kQ5_0> {
  static constexpr size_t kBytes = 22, kElements = kSmall;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const float d = half_at(in);
    const FifthBits high(in + 2);
    const uint8_t* q = in + 6;
    for (size_t i = 0; i < 16; ++i) out[i] = d * static_cast<float>(((q[i] & 15) | high[i]) - 16);
    for (size_t i = 0; i < 16; ++i)
      out[16 + i] = d * static_cast<float>(((q[i] >> 4) | high[16 + i]) - 16);
  }
};

template <>
struct Block<GgmlType::kQ5_1> {
  static constexpr size_t kBytes = 24, kElements = kSmall;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const float d = half_at(in), m = half_at(in + 2);
    const FifthBits high(in + 4);
    const uint8_t* q = in + 8;
    for (size_t i = 0; i < 16; ++i) out[i] = d * static_cast<float>((q[i] & 15) | high[i]) + m;
    for (size_t i = 0; i < 16; ++i)
      out[16 + i] = d * static_cast<float>((q[i] >> 4) | high[16 + i]) + m;
  }
};

// Blocks of 256, in groups with scales of their own, which are multiples of the block's.
constexpr size_t kLarge = 256;

// The 6-bit scales and minima of the 8 groups of 32 in Q4_K and Q5_K. Twelve bytes: for groups 0 to
// 3 the lower 6 bits of bytes 0-3 (scales) and 4-7 (minima); for groups 4 to 7 the lower and upper
// halves of bytes 8-11, with the two highest bits on top of bytes 0-3 and 4-7.
struct GroupScales {
  GroupScales(const uint8_t* in, float d, float d_minimum) {
    for (size_t i = 0; i < 4; ++i) {
      const uint8_t a = in[i], b = in[4 + i], c = in[8 + i];
      scale[i] = d * static_cast<float>(a & 63);
      minimum[i] = d_minimum * static_cast<float>(b & 63);
      scale[4 + i] = d * static_cast<float>((c & 15) | (a >> 6 << 4));
      minimum[4 + i] = d_minimum * static_cast<float>((c >> 4) | (b >> 6 << 4));
    }
  }

  std::array<float, 8> scale, minimum;
};

template <>
struct Block<GgmlType::kQ4_K> {
  static constexpr size_t kBytes = 144, kElements = kLarge;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const GroupScales groups(in + 4, half_at(in), half_at(in + 2));
    const uint8_t* q = in + 16;
    for (size_t group = 0; group < 8; group += 2, q += 32, out += 64) {
      for (size_t i = 0; i < 32; ++i)
        out[i] = groups.scale[group] * static_cast<float>(q[i] & 15) - groups.minimum[group];
      for (size_t i = 0; i < 32; ++i)
        out[32 + i] =
            groups.scale[group + 1] * static_cast<float>(q[i] >> 4) - groups.minimum[group + 1];
    }
  }
};

template <>
struct Block<GgmlType::kQ5_K> {
  static constexpr size_t kBytes = 176, kElements = kLarge;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const GroupScales groups(in + 4, half_at(in), half_at(in + 2));
    const uint8_t* high = in + 16;  // bit g of byte i belongs to element i of group g
    const uint8_t* q = in + 48;
    for (size_t group = 0; group < 8; group += 2, q += 32, out += 64) {
      for (size_t i = 0; i < 32; ++i) {
        const int value = (q[i] & 15) | (high[i] >> group & 1) << 4;
        out[i] = groups.scale[group] * static_cast<float>(value) - groups.minimum[group];
      }
      for (size_t i = 0; i < 32; ++i) {
        const int value = (q[i] >> 4) | (high[i] >> (group + 1) & 1) << 4;
        out[32 + i] =
            groups.scale[group + 1] * static_cast<float>(value) - groups.minimum[group + 1];
      }
    }
  }
};

template <>
struct Block<GgmlType::kQ6_K> {
  static constexpr size_t kBytes = 210, kElements = kLarge;
  static void convert(const uint8_t* __restrict in, float* __restrict out) {
    const uint8_t *low = in, *high = in + 128;
    const float d = half_at(in + 208);
    std::array<float, 16> scale;  // one for 16 elements
    for (size_t i = 0; i < 16; ++i)
      scale[i] = d * static_cast<float>(static_cast<int8_t>(in[192 + i]));
    // Each half: 64 bytes with the lower 4 bits, of elements 0-63 below those of 64-127, and 32
    // bytes with the upper 2 bits of elements i, i + 32, i + 64 and i + 96.
    for (size_t half = 0; half < 2; ++half, low += 64, high += 32, out += 128)
      for (size_t part = 0; part < 4; ++part)
        for (size_t group = 0; group < 2; ++group) {
          const float s = scale[8 * half + 2 * part + group];
          const uint8_t* l = low + 32 * (part % 2) + 16 * group;
          const uint8_t* h = high + 16 * group;
          float* o = out + 32 * part + 16 * group;
          const size_t l_shift = 4 * (part / 2), h_shift = 2 * part;
          for (size_t i = 0; i < 16; ++i) {
            const int value = (l[i] >> l_shift & 15) | (h[i] >> h_shift & 3) << 4;
            o[i] = s * static_cast<float>(value - 32);
          }
        }
  }
};

template <GgmlType type>
void convert_blocks(const uint8_t* in, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i)
    Block<type>::convert(in + i * Block<type>::kBytes, out + i * Block<type>::kElements);
}

// Through a small buffer that stays in the fastest cache.
template <GgmlType type>
void convert_blocks(const uint8_t* in, size_t count, uint16_t* out) {
  constexpr size_t kAtOnce = kLarge / Block<type>::kElements;
  std::array<float, kLarge> buffer;
  for (size_t done = 0; done < count; done += kAtOnce) {
    const size_t now = std::min(kAtOnce, count - done);
    convert_blocks<type>(in + done * Block<type>::kBytes, now, buffer.data());
    uint16_t* to = out + done * Block<type>::kElements;
    for (size_t i = 0; i < now * Block<type>::kElements; ++i) to[i] = bfloat16_of_float(buffer[i]);
  }
}

// Of the one of these types that it is; false: of none.
template <GgmlType... types, class Out>
bool convert_any(GgmlType type, const uint8_t* in, size_t count, Out* out) {
  return ((type == types && (convert_blocks<types>(in, count, out), true)) || ...);
}

template <class Out>
void dispatch(GgmlType type, const std::string& name, const uint8_t* in, size_t count, Out* out) {
  using enum GgmlType;
  const bool known =
      convert_any<kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K>(
          type, in, count, out);
  TEMPERA_CHECK(known, "tensor \"", name, "\" has the type ", info_of(type).name,
                ", which cannot be read as floats; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
                "Q4_K, Q5_K or Q6_K expected");
}

template <class Out>
void dequantize(const GgufTensor& tensor, int64_t begin, int64_t end, std::span<Out> out) {
  const int64_t rows = row_count(tensor), columns = column_count(tensor);
  TEMPERA_CHECK(begin >= 0 && begin <= end && end <= rows, "tensor \"", tensor.name, "\": rows ",
                begin, " to ", end, " asked for; it has ", rows);
  const auto elements = static_cast<uint64_t>(end - begin) * static_cast<uint64_t>(columns);
  TEMPERA_CHECK(out.size() == elements, "tensor \"", tensor.name, "\": room for ", out.size(),
                " elements given; the rows have ", elements);
  const GgmlTypeInfo& info = info_of(tensor.type);
  const uint64_t row_blocks = static_cast<uint64_t>(columns) / info.block_elements;
  TEMPERA_CHECK(tensor.bytes.size() ==
                    ggml_bytes(tensor.type, tensor.shape, concat("tensor \"", tensor.name, "\"")),
                "tensor \"", tensor.name, "\" has ", tensor.bytes.size(),
                " bytes, which do not fit its shape ", shape_text(tensor.shape));
  const auto* in = reinterpret_cast<const uint8_t*>(tensor.bytes.data()) +
                   static_cast<uint64_t>(begin) * row_blocks * info.block_bytes;
  dispatch(tensor.type, tensor.name, in, static_cast<uint64_t>(end - begin) * row_blocks,
           out.data());
}

}  // namespace

int64_t row_count(const GgufTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

int64_t column_count(const GgufTensor& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.back();
}

void dequantize_rows(const GgufTensor& tensor, int64_t begin, int64_t end, std::span<float> out) {
  dequantize(tensor, begin, end, out);
}

void dequantize_rows(const GgufTensor& tensor, int64_t begin, int64_t end,
                     std::span<uint16_t> out) {
  dequantize(tensor, begin, end, out);
}

}  // namespace tempera::io
