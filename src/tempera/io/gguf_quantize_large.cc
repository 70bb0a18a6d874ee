#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tempera/io/float_bits.h"
#include "tempera/io/gguf_quantize.h"

// Blocks of 256 in groups with scales of their own, themselves whole multiples of the block's. The
// format says how they are read; how good they are is up to the writer. Each group's scale is the
// best of several in the sense of least squares.
namespace tempera::io {
namespace {

constexpr int kTries = 20;  // more change nothing that can be measured

bool is_finite_half(uint16_t half) { return (half & 0x7c00U) != 0x7c00U; }

int level(float value, int least, int most) {
  return std::clamp(static_cast<int>(std::lround(value)), least, most);
}

// x is about scale * q - minimum; both are at least 0.
struct Line {
  float scale = 0, minimum = 0;
};

constexpr size_t kGroup = 32;
using GroupLevels = std::array<float, kGroup>;

float squared_error(const float* x, const GroupLevels& q, const Line& line) {
  float sum = 0;
  for (size_t i = 0; i < kGroup; ++i) {
    const float difference = line.scale * q[i] - line.minimum - x[i];
    sum += difference * difference;
  }
  return sum;
}

// The line through the levels with the least squared error; with a minimum of 0 where a better one
// would be negative.
Line fitted(const float* x, const GroupLevels& q) {
  float sum_x = 0, sum_q = 0, sum_qq = 0, sum_xq = 0;
  for (size_t i = 0; i < kGroup; ++i) {
    sum_x += x[i];
    sum_q += q[i];
    sum_qq += q[i] * q[i];
    sum_xq += x[i] * q[i];
  }
  constexpr auto kCount = static_cast<float>(kGroup);
  const float determinant = kCount * sum_qq - sum_q * sum_q;
  if (determinant <= 0) return {};
  const float scale = (kCount * sum_xq - sum_x * sum_q) / determinant;
  const float minimum = (sum_q * sum_xq - sum_qq * sum_x) / determinant;
  if (minimum < 0) return {sum_xq / sum_qq, 0};
  return {scale, minimum};
}

Line best_line(const float* x, int most) {
  const auto [low, high] = std::minmax_element(x, x + kGroup);
  const float least = std::min(*low, 0.0F), width = *high - least;
  if (!(width > 0) || !std::isfinite(width)) return {width > 0 ? width : 0, -least};
  Line best{width / static_cast<float>(most), -least};
  float best_error = INFINITY;
  for (int attempt = 0; attempt <= kTries; ++attempt) {
    const float inverse =
        (static_cast<float>(most) - 1 + 0.1F * static_cast<float>(attempt)) / width;
    GroupLevels q;
    for (size_t i = 0; i < kGroup; ++i)
      q[i] = std::min(std::floor((x[i] - least) * inverse + 0.5F), static_cast<float>(most));
    for (const Line& line : {fitted(x, q), Line{1 / inverse, -least}}) {
      if (!(line.scale > 0) || !std::isfinite(line.scale) || !std::isfinite(line.minimum)) continue;
      const float error = squared_error(x, q, line);
      if (error >= best_error) continue;
      best = line;
      best_error = error;
    }
  }
  return best;
}

// Twelve bytes of the 6-bit scales and minima of eight groups, as gguf_dequantize.cc reads them.
void pack_scales(const std::array<int, 8>& scale, const std::array<int, 8>& minimum,
                 std::byte* out) {
  for (size_t i = 0; i < 4; ++i) {
    out[i] = static_cast<std::byte>(scale[i] | (scale[4 + i] >> 4) << 6);
    out[4 + i] = static_cast<std::byte>(minimum[i] | (minimum[4 + i] >> 4) << 6);
    out[8 + i] = static_cast<std::byte>((scale[4 + i] & 15) | (minimum[4 + i] & 15) << 4);
  }
}

float inverse_or_zero(float x) { return x > 0 && std::isfinite(1 / x) ? 1 / x : 0; }

template <int bits>
bool quantize_with_minima(const float* x, std::byte* out) {
  constexpr int kMost = (1 << bits) - 1;
  std::array<Line, 8> lines;
  float most_scale = 0, most_minimum = 0;
  for (size_t g = 0; g < 8; ++g) {
    lines[g] = best_line(x + g * kGroup, kMost);
    most_scale = std::max(most_scale, lines[g].scale);
    most_minimum = std::max(most_minimum, lines[g].minimum);
  }
  const uint16_t halves[] = {half_of_float(most_scale / 63), half_of_float(most_minimum / 63)};
  if (!is_finite_half(halves[0]) || !is_finite_half(halves[1])) return false;
  const float d = float_of_half(halves[0]), d_minimum = float_of_half(halves[1]);
  std::array<int, 8> scale, minimum;
  std::array<uint8_t, kLargeBlock> q;
  for (size_t g = 0; g < 8; ++g) {
    scale[g] = level(lines[g].scale * inverse_or_zero(d), 0, 63);
    minimum[g] = level(lines[g].minimum * inverse_or_zero(d_minimum), 0, 63);
    const float lowest = d_minimum * static_cast<float>(minimum[g]);
    const float inverse = inverse_or_zero(d * static_cast<float>(scale[g]));
    for (size_t i = g * kGroup; i < (g + 1) * kGroup; ++i)
      q[i] = static_cast<uint8_t>(level((x[i] + lowest) * inverse, 0, kMost));
  }
  std::memcpy(out, halves, sizeof(halves));
  pack_scales(scale, minimum, out + 4);
  std::byte* low = out + 16;
  if constexpr (bits == 5) {
    for (size_t i = 0; i < kGroup; ++i) {
      int fifths = 0;
      for (size_t g = 0; g < 8; ++g) fifths |= (q[g * kGroup + i] >> 4) << g;
      low[i] = static_cast<std::byte>(fifths);
    }
    low += kGroup;
  }
  for (size_t pair = 0; pair < 4; ++pair)
    for (size_t i = 0; i < kGroup; ++i)
      low[pair * kGroup + i] =
          static_cast<std::byte>((q[pair * 64 + i] & 15) | (q[pair * 64 + kGroup + i] & 15) << 4);
  return true;
}

// x is about scale * q, q from -32 to 31.
float best_scale(const float* x) {
  float largest = 0;
  for (size_t i = 0; i < 16; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  if (largest == 0) return 0;
  float best = largest / -32, best_gain = 0;
  for (int attempt = -9; attempt <= 9; ++attempt) {
    const float inverse = -(32 + 0.1F * static_cast<float>(attempt)) / largest;
    if (!std::isfinite(inverse)) return best;
    float sum_xq = 0, sum_qq = 0;
    for (size_t i = 0; i < 16; ++i) {
      const float q = std::clamp(std::round(x[i] * inverse), -32.0F, 31.0F);
      sum_xq += x[i] * q;
      sum_qq += q * q;
    }
    // By how much the best scale for these levels lowers the squared error.
    const float gain = sum_qq > 0 ? sum_xq * sum_xq / sum_qq : 0;
    if (gain <= best_gain || !std::isfinite(gain)) continue;
    best_gain = gain;
    best = sum_xq / sum_qq;
  }
  return best;
}

bool quantize_with_signed_scales(const float* x, std::byte* out) {
  std::array<float, 16> scales;
  float largest = 0;
  for (size_t g = 0; g < 16; ++g) {
    scales[g] = best_scale(x + 16 * g);
    if (std::abs(scales[g]) > std::abs(largest)) largest = scales[g];
  }
  const uint16_t half = half_of_float(largest / -128);
  if (!is_finite_half(half)) return false;
  const float d = float_of_half(half);
  const float inverse_d = d != 0 && std::isfinite(1 / d) ? 1 / d : 0;
  std::array<uint8_t, kLargeBlock> q;
  for (size_t g = 0; g < 16; ++g) {
    const int scale = level(scales[g] * inverse_d, -128, 127);
    out[192 + g] = static_cast<std::byte>(scale);
    const float step = d * static_cast<float>(scale);
    const float inverse = step != 0 && std::isfinite(1 / step) ? 1 / step : 0;
    for (size_t i = 16 * g; i < 16 * (g + 1); ++i)
      q[i] = static_cast<uint8_t>(level(x[i] * inverse, -32, 31) + 32);
  }
  std::memcpy(out + 208, &half, sizeof(half));
  for (size_t part = 0; part < 2; ++part) {
    const uint8_t* from = q.data() + 128 * part;
    for (size_t i = 0; i < 64; ++i)
      out[64 * part + i] = static_cast<std::byte>((from[i] & 15) | (from[64 + i] & 15) << 4);
    for (size_t i = 0; i < 32; ++i)
      out[128 + 32 * part + i] =
          static_cast<std::byte>(from[i] >> 4 | (from[32 + i] >> 4) << 2 |
                                 (from[64 + i] >> 4) << 4 | (from[96 + i] >> 4) << 6);
  }
  return true;
}

}  // namespace

bool quantize_large_block(GgmlType type, const float* values, std::byte* out) {
  if (type == GgmlType::kQ4_K) return quantize_with_minima<4>(values, out);
  if (type == GgmlType::kQ5_K) return quantize_with_minima<5>(values, out);
  return quantize_with_signed_scales(values, out);
}

}  // namespace tempera::io
