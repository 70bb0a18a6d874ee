#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tempera/plot/canvas.h"

namespace tempera::plot {

// A built-in stroke font whose widths follow the usual sans-serif faces, so that one layout fits
// both the raster picture (drawn with these strokes) and SVG (drawn by the viewer with its own
// face).

// Width of a line of text at the given size.
double text_width(std::string_view utf8, double size, bool bold = false);

// Height of a capital letter at the given size, to centre text vertically.
double cap_height(double size);

// Pen width at the given size.
double pen_width(double size, bool bold);

// The pen's paths for a line of text that starts at the origin, baseline at y = 0 and y downwards.
std::vector<std::vector<Point>> text_strokes(std::string_view utf8, double size, bool bold = false);

// The text cut to the given width, with an ellipsis where something was cut.
std::string fit_text(std::string_view utf8, double size, double width, bool bold = false);

}  // namespace tempera::plot
