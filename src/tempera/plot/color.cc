#include "tempera/plot/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace tempera::plot {
namespace {

// Okabe and Ito's hues, as dark as a white page needs; no yellow and no black.
constexpr std::array<Color, kSeriesColors> kSeries{{{0, 114, 178},
                                                    {213, 94, 0},
                                                    {0, 143, 104},
                                                    {184, 87, 143},
                                                    {168, 123, 0},
                                                    {59, 147, 204},
                                                    {120, 94, 170},
                                                    {111, 111, 111}}};

// Lightness falls evenly along both arms, so that the order survives in grey.
constexpr std::array<Color, 6> kSequentialStops{{{247, 250, 252},
                                                 {198, 221, 236},
                                                 {125, 181, 214},
                                                 {52, 132, 186},
                                                 {14, 82, 139},
                                                 {9, 36, 77}}};
constexpr std::array<Color, 7> kDivergingStops{{{11, 68, 124},
                                                {62, 135, 190},
                                                {166, 204, 228},
                                                {247, 247, 245},
                                                {248, 195, 148},
                                                {221, 117, 45},
                                                {141, 58, 6}}};

uint8_t mix(uint8_t from, uint8_t to, double t) {
  return static_cast<uint8_t>(std::lround(from + (to - from) * t));
}

Color interpolate(std::span<const Color> stops, double t) {
  const double position = t * static_cast<double>(stops.size() - 1);
  const size_t index = std::min(static_cast<size_t>(position), stops.size() - 2);
  const double rest = position - static_cast<double>(index);
  const Color &a = stops[index], &b = stops[index + 1];
  return {mix(a.r, b.r, rest), mix(a.g, b.g, rest), mix(a.b, b.b, rest)};
}

double linear(uint8_t channel) { return std::pow(channel / 255.0, 2.2); }

}  // namespace

Color series_color(size_t n) {
  Color color = kSeries[n % kSeries.size()];
  color.role = Role::kSeries;
  color.series = static_cast<uint8_t>(n % kSeries.size());
  return color;
}

Color with_alpha(Color color, double alpha) {
  color.alpha = alpha;
  return color;
}

std::string hex(Color color) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "#";
  for (const uint8_t channel : {color.r, color.g, color.b}) {
    text += kDigits[channel >> 4];
    text += kDigits[channel & 15];
  }
  return text;
}

Color text_on(Color background) {
  const double luminance =
      0.2126 * linear(background.r) + 0.7152 * linear(background.g) + 0.0722 * linear(background.b);
  return luminance > 0.3 ? Color{31, 36, 48} : Color{255, 255, 255};
}

Color scale_color(ColorScale scale, double t) {
  t = std::isnan(t) ? 0 : std::clamp(t, 0.0, 1.0);
  return scale == ColorScale::kSequential ? interpolate(kSequentialStops, t)
                                          : interpolate(kDivergingStops, t);
}

}  // namespace tempera::plot
