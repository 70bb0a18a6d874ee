#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tempera::plot {

// The part a colour plays. A page may restyle every role but kFixed (a dark theme does), so charts
// use the theme colours below for everything that is not data, and those of series for lines and
// bars.
enum class Role : uint8_t { kFixed, kPaper, kInk, kMuted, kGrid, kSeries };

struct Color {
  uint8_t r = 0, g = 0, b = 0;
  double alpha = 1;
  Role role = Role::kFixed;
  uint8_t series = 0;  // of kSeries: which, from 0
};

inline constexpr Color kPaper{255, 255, 255, 1, Role::kPaper};
inline constexpr Color kInk{31, 36, 48, 1, Role::kInk};
inline constexpr Color kMuted{91, 98, 114, 1, Role::kMuted};
inline constexpr Color kGrid{223, 227, 234, 1, Role::kGrid};

inline constexpr size_t kSeriesColors = 8;

// The colour of the n-th series, as in theme.css: eight hues that stay apart for colour-blind
// readers, then again.
Color series_color(size_t n);

Color with_alpha(Color color, double alpha);

// #rrggbb; the alpha is not part of it.
std::string hex(Color color);

// Black or white, whichever reads better on the given colour.
Color text_on(Color background);

enum class ColorScale : uint8_t {
  kSequential,  // pale to dark, for amounts
  kDiverging,   // blue through pale to orange, for differences around the middle
};

// The colour at t in [0, 1]; values outside are clamped.
Color scale_color(ColorScale scale, double t);

}  // namespace tempera::plot
