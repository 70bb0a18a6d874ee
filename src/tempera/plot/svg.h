#pragma once

#include <string>
#include <string_view>

#include "tempera/plot/canvas.h"

namespace tempera::plot {

// Text for XML and HTML, in elements and in quoted attributes. Characters that XML forbids and
// bytes that are not UTF-8 become U+FFFD.
std::string escape_xml(std::string_view text);

// Writes SVG 1.1. Colours of a theme role also carry a class (tp-ink, tp-ink-line, ...), which a
// page may restyle; a viewer without that style sheet sees the light theme.
class SvgCanvas final : public Canvas {
 public:
  // `label` is read out by screen readers.
  SvgCanvas(double width, double height, std::string_view label);

  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, Color fill) override;
  void rect(const Rect& rect, Color fill) override;
  void circle(Point centre, double radius, Color fill) override;
  void text(Point at, std::string_view utf8, const TextStyle& style) override;
  void cells(const Rect& rect, size_t rows, size_t columns, std::span<const Color> colors) override;
  void begin_clip(const Rect& rect) override;
  void end_clip() override;

  // The whole document.
  std::string svg() const { return body_ + "</svg>\n"; }

 private:
  void attribute(std::string_view name, double value);
  void paint(std::string_view property, Color color);

  std::string body_;
};

}  // namespace tempera::plot
