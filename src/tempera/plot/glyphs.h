#pragma once

#include <span>
#include <string_view>

namespace tempera::plot {

// A glyph as pen movements on an em of 10 units, y upwards from the baseline, capitals 7 high:
//   M x y           lift the pen and put it down here
//   L x y           line
//   Q cx cy x y     quadratic curve
//   A cx cy rx ry from to   arc of an ellipse in degrees, counter-clockwise when to > from
//   O ...           the same arc with the pen lifted before it
struct Glyph {
  char32_t code;
  double advance;
  std::string_view path;
};

// Sorted by code.
std::span<const Glyph> glyphs();

}  // namespace tempera::plot
