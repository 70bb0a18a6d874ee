#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tempera/plot/color.h"

namespace tempera::plot {

// Coordinates are in points of the finished picture, x to the right and y downwards.
struct Point {
  double x = 0, y = 0;
};

struct Rect {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

struct Stroke {
  Color color = kInk;
  double width = 1;
  std::vector<double> dashes = {};  // lengths drawn and left out in turn; empty: a whole line
};

enum class Anchor : uint8_t { kStart, kMiddle, kEnd };

struct TextStyle {
  double size = 11;
  Color color = kInk;
  Anchor anchor = Anchor::kStart;
  bool bold = false;
  double degrees = 0;  // clockwise turn around the anchor point
};

// What a chart is drawn on. Every chart is described once, in these few marks; each back end
// renders them. Coordinates must be finite.
class Canvas {
 public:
  virtual ~Canvas() = default;
  // Round joins and ends.
  virtual void polyline(std::span<const Point> points, const Stroke& stroke) = 0;
  virtual void polygon(std::span<const Point> points, Color fill) = 0;
  virtual void rect(const Rect& rect, Color fill) = 0;
  virtual void circle(Point centre, double radius, Color fill) = 0;
  // The point is on the baseline.
  virtual void text(Point at, std::string_view utf8, const TextStyle& style) = 0;
  // A grid of equal cells without gaps, row by row from the top.
  virtual void cells(const Rect& rect, size_t rows, size_t columns,
                     std::span<const Color> colors) = 0;
  // Until end_clip, nothing is drawn outside the rectangle. Does not nest.
  virtual void begin_clip(const Rect& rect) = 0;
  virtual void end_clip() = 0;
};

}  // namespace tempera::plot
