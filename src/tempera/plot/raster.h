#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tempera/plot/canvas.h"

namespace tempera::plot {

// Rows from the top, three bytes a pixel.
struct Image {
  size_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
};

// Draws with anti-aliasing into memory. `scale` is pixels a point: 2 for screens of high density.
class RasterCanvas final : public Canvas {
 public:
  RasterCanvas(double width, double height, double scale);

  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, Color fill) override;
  void rect(const Rect& rect, Color fill) override;
  void circle(Point centre, double radius, Color fill) override;
  void text(Point at, std::string_view utf8, const TextStyle& style) override;
  void cells(const Rect& rect, size_t rows, size_t columns, std::span<const Color> colors) override;
  void begin_clip(const Rect& rect) override;
  void end_clip() override;

  const Image& image() const { return image_; }

 private:
  // Pixel bounds, the upper ones exclusive.
  struct Box {
    size_t x0, y0, x1, y1;
  };
  Box pixels(double left, double top, double right, double bottom) const;
  void blend(size_t x, size_t y, Color color, double coverage);
  void stroke_paths(std::span<const std::vector<Point>> paths, double width, Color color);

  double scale_;
  Image image_;
  std::optional<Rect> clip_;  // in pixels
  std::vector<float> mask_;   // coverage of the mark being drawn, kept for its memory
};

// The file format, in memory.
std::vector<uint8_t> encode_png(const Image& image);

}  // namespace tempera::plot
