#include "tempera/io/gguf_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/io/float_bits.h"
#include "tempera/io/gguf_blocks.h"

namespace tempera::io {
namespace {

constexpr size_t kBlock = 32;
constexpr uint16_t kInfinity = 0x7c00;  // of half precision

[[noreturn]] void refuse(GgmlType type, float value, std::string_view why) {
  throw Error(concat("the value ", value, " cannot be stored as ", info_of(type).name, ": ", why,
                     "; choose another type"));
}

void quantize_f16(std::span<const float> values, std::byte* out) {
  bool fits = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = half_of_float(values[i]);
    std::memcpy(out + 2 * i, &half, sizeof(half));
    fits &= std::abs(values[i]) < 65520.0F || !std::isfinite(values[i]);
  }
  if (fits) return;
  const float bad = *std::find_if(values.begin(), values.end(), [](float value) {
    return std::isfinite(value) && std::abs(value) >= 65520.0F;
  });
  refuse(GgmlType::kF16, bad, "65504 is the largest number");
}

void quantize_bf16(std::span<const float> values, std::byte* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = bfloat16_of_float(values[i]);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

// To the nearest whole number, halves away from zero, for magnitudes below 2^23. The comparison
// with the fraction is exact, which adding 0.5 first is not.
int round_away(float value) {
  const float magnitude = std::abs(value);
  const int whole = static_cast<int>(magnitude);
  const int rounded = whole + (magnitude - static_cast<float>(whole) >= 0.5F ? 1 : 0);
  return value < 0 ? -rounded : rounded;
}

uint16_t finite_half(GgmlType type, float number, float value) {
  const uint16_t half = half_of_float(number);
  if ((half & 0x7fffU) == kInfinity) refuse(type, value, "its block's scale would be infinite");
  return half;
}

void check_finite(GgmlType type, std::span<const float> values) {
  bool finite = true;
  for (const float value : values) finite &= std::isfinite(value);
  if (finite) return;
  refuse(type,
         *std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
         "it is not finite");
}

// Where the inverse of a tiny scale is infinite, the stored scale is zero, and so is the block.
float inverse_of(float scale) {
  const float inverse = 1.0F / scale;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

// The scale is a 127th of the largest magnitude, and each element the multiple nearest to it.
void quantize_block_q8_0(const float* values, std::byte* out) {
  float largest = 0;
  for (size_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(values[i]));
  const float d = largest / 127.0F;
  const uint16_t scale = finite_half(GgmlType::kQ8_0, d, largest);
  const float factor = inverse_of(d);
  std::memcpy(out, &scale, sizeof(scale));
  for (size_t i = 0; i < kBlock; ++i)
    out[2 + i] = static_cast<std::byte>(round_away(values[i] * factor));
}

// Elements i and i + 16 share a byte; the fifth bits of all 32 stand before.
template <int bits>
void pack_block(const std::array<uint8_t, kBlock>& q, std::byte* out) {
  if constexpr (bits == 5) {
    uint32_t fifths = 0;
    for (size_t i = 0; i < kBlock; ++i) fifths |= static_cast<uint32_t>(q[i] >> 4) << i;
    std::memcpy(out, &fifths, sizeof(fifths));
    out += sizeof(fifths);
  }
  for (size_t i = 0; i < kBlock / 2; ++i)
    out[i] = static_cast<std::byte>((q[i] & 15) | (q[i + kBlock / 2] & 15) << 4);
}

// The element of the largest magnitude, the first of equals, is the lowest of the levels.
template <int bits>
void quantize_block_centred(GgmlType type, const float* values, std::byte* out) {
  constexpr float kHalf = 1 << (bits - 1), kMost = (1 << bits) - 1;
  float largest = values[0];
  for (size_t i = 1; i < kBlock; ++i)
    if (std::abs(values[i]) > std::abs(largest)) largest = values[i];
  const float d = largest / -kHalf;
  const uint16_t scale = finite_half(type, d, largest);
  const float factor = inverse_of(d);
  std::memcpy(out, &scale, sizeof(scale));
  std::array<uint8_t, kBlock> q;
  for (size_t i = 0; i < kBlock; ++i)
    q[i] = static_cast<uint8_t>(std::min(values[i] * factor + (kHalf + 0.5F), kMost));
  pack_block<bits>(q, out + sizeof(scale));
}

// The levels begin at the smallest element and end at the largest.
template <int bits>
void quantize_block_from_minimum(GgmlType type, const float* values, std::byte* out) {
  constexpr float kMost = (1 << bits) - 1;
  const auto [least, most] = std::minmax_element(values, values + kBlock);
  const float minimum = *least, d = (*most - minimum) / kMost;
  const uint16_t halves[] = {finite_half(type, d, *most), finite_half(type, minimum, minimum)};
  const float factor = inverse_of(d);
  std::memcpy(out, halves, sizeof(halves));
  std::array<uint8_t, kBlock> q;
  for (size_t i = 0; i < kBlock; ++i)
    q[i] = static_cast<uint8_t>(std::min((values[i] - minimum) * factor + 0.5F, kMost));
  pack_block<bits>(q, out + sizeof(halves));
}

void quantize_block(GgmlType type, const float* values, std::byte* out) {
  switch (type) {
    case GgmlType::kQ8_0:
      return quantize_block_q8_0(values, out);
    case GgmlType::kQ4_0:
      return quantize_block_centred<4>(type, values, out);
    case GgmlType::kQ5_0:
      return quantize_block_centred<5>(type, values, out);
    case GgmlType::kQ4_1:
      return quantize_block_from_minimum<4>(type, values, out);
    case GgmlType::kQ5_1:
      return quantize_block_from_minimum<5>(type, values, out);
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
    case GgmlType::kQ6_K:
      if (!quantize_large_block(type, values, out))
        refuse(type,
               *std::max_element(values, values + kLargeBlock,
                                 [](float a, float b) { return std::abs(a) < std::abs(b); }),
               "its block's scale would be infinite");
      return;
    default:
      throw Error(concat("the type ", info_of(type).name,
                         " cannot be written; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, "
                         "Q5_K or Q6_K expected"));
  }
}

}  // namespace

void quantize(GgmlType type, std::span<const float> values, std::span<std::byte> out) {
  const GgmlTypeInfo& info = info_of(type);
  TEMPERA_CHECK(values.size() % info.block_elements == 0, values.size(), " values given; ",
                info.name, " needs a multiple of ", info.block_elements);
  const uint64_t expected = values.size() / info.block_elements * info.block_bytes;
  TEMPERA_CHECK(out.size() == expected, "room for ", out.size(), " bytes given; ", values.size(),
                " values as ", info.name, " need ", expected);
  switch (type) {
    case GgmlType::kF32:
      std::ranges::copy(std::as_bytes(values), out.begin());
      return;
    case GgmlType::kF16:
      return quantize_f16(values, out.data());
    case GgmlType::kBF16:
      return quantize_bf16(values, out.data());
    default:
      check_finite(type, values);
      for (size_t i = 0; i < values.size() / info.block_elements; ++i)
        quantize_block(type, values.data() + i * info.block_elements,
                       out.data() + i * info.block_bytes);
  }
}

}  // namespace tempera::io
