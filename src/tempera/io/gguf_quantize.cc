#include <algorithm>
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

// The scale is a 127th of the largest magnitude, and each element the multiple nearest to it.
void quantize_block_q8_0(const float* values, std::byte* out) {
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::abs(values[i]));
    finite &= std::isfinite(values[i]);
  }
  if (!finite)
    refuse(GgmlType::kQ8_0,
           *std::find_if_not(values, values + kBlock, [](float v) { return std::isfinite(v); }),
           "it is not finite");
  const float d = largest / 127.0F;
  const uint16_t scale = half_of_float(d);
  if (scale == kInfinity) refuse(GgmlType::kQ8_0, largest, "its block's scale would be infinite");
  // Where the inverse of a tiny scale is infinite, the stored scale is zero, and so is the block.
  const float inverse = 1.0F / d;
  const float factor = std::isfinite(inverse) ? inverse : 0.0F;
  std::memcpy(out, &scale, sizeof(scale));
  for (size_t i = 0; i < kBlock; ++i)
    out[2 + i] = static_cast<std::byte>(round_away(values[i] * factor));
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
    case GgmlType::kQ8_0:
      for (size_t i = 0; i < values.size() / kBlock; ++i)
        quantize_block_q8_0(values.data() + i * kBlock, out.data() + i * info.block_bytes);
      return;
    default:
      throw Error(
          concat("the type ", info.name, " cannot be written; F32, F16, BF16 or Q8_0 expected"));
  }
}

}  // namespace tempera::io
