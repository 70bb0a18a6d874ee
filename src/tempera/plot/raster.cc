#include "tempera/plot/raster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tempera/base/error.h"
#include "tempera/plot/font.h"

namespace tempera::plot {
namespace {

double distance_to_segment(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double square = dx * dx + dy * dy;
  double t = square > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / square : 0;
  t = std::clamp(t, 0.0, 1.0);
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// Cuts a path into its drawn dashes. Lengths must be positive.
std::vector<std::vector<Point>> dash(std::span<const Point> points,
                                     std::span<const double> lengths) {
  std::vector<std::vector<Point>> pieces(1, {points[0]});
  size_t part = 0;
  double left = lengths[0];
  for (size_t i = 1; i < points.size(); ++i) {
    Point from = points[i - 1];
    const Point to = points[i];
    for (double rest = std::hypot(to.x - from.x, to.y - from.y); rest > 0;) {
      const double step = std::min(left, rest);
      from = {from.x + (to.x - from.x) * step / rest, from.y + (to.y - from.y) * step / rest};
      rest -= step;
      left -= step;
      if (part % 2 == 0) pieces.back().push_back(from);
      if (left > 0) continue;
      left = lengths[++part % lengths.size()];
      if (part % 2 == 0) pieces.push_back({from});
    }
  }
  return pieces;
}

// How much of the pixel [i, i + 1) the interval [from, to) covers.
double overlap(size_t i, double from, double to) {
  const double pixel = static_cast<double>(i);
  return std::max(0.0, std::min(pixel + 1, to) - std::max(pixel, from));
}

uint8_t mix(uint8_t below, uint8_t above, double t) {
  return static_cast<uint8_t>(std::lround(below + (above - below) * t));
}

}  // namespace

RasterCanvas::RasterCanvas(double width, double height, double scale) : scale_(scale) {
  const double wide = std::ceil(width * scale), high = std::ceil(height * scale);
  TEMPERA_CHECK(wide >= 1 && high >= 1 && wide <= 20000 && high <= 20000, "a picture of ", wide,
                " x ", high,
                " pixels: 1 to 20000 expected in each direction; use fewer or smaller panels");
  image_.width = static_cast<size_t>(wide);
  image_.height = static_cast<size_t>(high);
  image_.rgb.assign(image_.width * image_.height * 3, 255);
}

RasterCanvas::Box RasterCanvas::pixels(double left, double top, double right, double bottom) const {
  if (clip_) {
    left = std::max(left, clip_->x);
    top = std::max(top, clip_->y);
    right = std::min(right, clip_->right());
    bottom = std::min(bottom, clip_->bottom());
  }
  const auto limit = [](double value, size_t size) {
    return static_cast<size_t>(std::clamp(value, 0.0, static_cast<double>(size)));
  };
  const Box box{limit(std::floor(left), image_.width), limit(std::floor(top), image_.height),
                limit(std::ceil(right), image_.width), limit(std::ceil(bottom), image_.height)};
  return {box.x0, box.y0, std::max(box.x0, box.x1), std::max(box.y0, box.y1)};
}

void RasterCanvas::blend(size_t x, size_t y, Color color, double coverage) {
  if (clip_)
    coverage *= overlap(x, clip_->x, clip_->right()) * overlap(y, clip_->y, clip_->bottom());
  const double t = std::clamp(coverage * color.alpha, 0.0, 1.0);
  uint8_t* pixel = &image_.rgb[(y * image_.width + x) * 3];
  pixel[0] = mix(pixel[0], color.r, t);
  pixel[1] = mix(pixel[1], color.g, t);
  pixel[2] = mix(pixel[2], color.b, t);
}

// All paths together cover a pixel once, so that joins and crossings of a translucent line do not
// darken.
void RasterCanvas::stroke_paths(std::span<const std::vector<Point>> paths, double width,
                                Color color) {
  const double reach = std::max(width, 1.0) / 2;
  const double strength = std::min(width, 1.0);  // thinner than a pixel: fainter, not thinner
  constexpr double kFar = std::numeric_limits<double>::infinity();
  double left = kFar, top = kFar, right = -kFar, bottom = -kFar;
  for (const auto& path : paths)
    for (const Point& p : path) {
      left = std::min(left, p.x);
      right = std::max(right, p.x);
      top = std::min(top, p.y);
      bottom = std::max(bottom, p.y);
    }
  if (!(left <= right)) return;
  const double margin = reach + 1;
  const Box whole = pixels(left - margin, top - margin, right + margin, bottom + margin);
  const size_t columns = whole.x1 - whole.x0;
  mask_.assign(columns * (whole.y1 - whole.y0), 0);
  for (const auto& path : paths) {
    for (size_t i = 0; i < path.size(); ++i) {
      const Point a = path[i == 0 ? 0 : i - 1], b = path[i];
      const Box box = pixels(std::min(a.x, b.x) - margin, std::min(a.y, b.y) - margin,
                             std::max(a.x, b.x) + margin, std::max(a.y, b.y) + margin);
      for (size_t y = box.y0; y < box.y1; ++y)
        for (size_t x = box.x0; x < box.x1; ++x) {
          const Point centre{static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5};
          const double cover =
              std::clamp(reach + 0.5 - distance_to_segment(centre, a, b), 0.0, 1.0);
          float& mask = mask_[(y - whole.y0) * columns + (x - whole.x0)];
          mask = std::max(mask, static_cast<float>(cover));
        }
    }
  }
  for (size_t y = whole.y0; y < whole.y1; ++y)
    for (size_t x = whole.x0; x < whole.x1; ++x)
      if (const float mask = mask_[(y - whole.y0) * columns + (x - whole.x0)]; mask > 0)
        blend(x, y, color, static_cast<double>(mask) * strength);
}

void RasterCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  if (points.empty()) return;
  std::vector<Point> scaled;
  for (const Point& p : points) scaled.push_back({p.x * scale_, p.y * scale_});
  std::vector<std::vector<Point>> paths;
  if (stroke.dashes.empty()) {
    paths.push_back(std::move(scaled));
  } else {
    std::vector<double> lengths = stroke.dashes;
    for (double& length : lengths) length = std::max(length * scale_, 0.5);
    paths = dash(scaled, lengths);
  }
  stroke_paths(paths, stroke.width * scale_, stroke.color);
}

// Exact coverage along x on several lines through each pixel row; even-odd rule.
void RasterCanvas::polygon(std::span<const Point> points, Color fill) {
  if (points.size() < 3) return;
  constexpr int kLines = 8;
  double top = points[0].y, bottom = points[0].y;
  for (const Point& p : points) {
    top = std::min(top, p.y);
    bottom = std::max(bottom, p.y);
  }
  const Box box = pixels(0, top * scale_, static_cast<double>(image_.width), bottom * scale_);
  std::vector<double> crossings;
  std::vector<double> row(image_.width);
  for (size_t y = box.y0; y < box.y1; ++y) {
    std::fill(row.begin(), row.end(), 0);
    for (int line = 0; line < kLines; ++line) {
      const double at = static_cast<double>(y) + (line + 0.5) / kLines;
      crossings.clear();
      for (size_t i = 0; i < points.size(); ++i) {
        const Point& p = points[i];
        const Point& q = points[(i + 1) % points.size()];
        const double py = p.y * scale_, qy = q.y * scale_;
        if ((py <= at) != (qy <= at))
          crossings.push_back((p.x + (q.x - p.x) * (at - py) / (qy - py)) * scale_);
      }
      std::sort(crossings.begin(), crossings.end());
      for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
        const Box span = pixels(crossings[i], static_cast<double>(y), crossings[i + 1],
                                static_cast<double>(y + 1));
        for (size_t x = span.x0; x < span.x1; ++x)
          row[x] += overlap(x, crossings[i], crossings[i + 1]) / kLines;
      }
    }
    for (size_t x = box.x0; x < box.x1; ++x)
      if (row[x] > 0) blend(x, y, fill, row[x]);
  }
}

void RasterCanvas::rect(const Rect& rect, Color fill) {
  const double left = rect.x * scale_, right = rect.right() * scale_;
  const double top = rect.y * scale_, bottom = rect.bottom() * scale_;
  const Box box = pixels(left, top, right, bottom);
  for (size_t y = box.y0; y < box.y1; ++y)
    for (size_t x = box.x0; x < box.x1; ++x)
      blend(x, y, fill, overlap(x, left, right) * overlap(y, top, bottom));
}

void RasterCanvas::circle(Point centre, double radius, Color fill) {
  const std::vector<Point> dot{{centre.x * scale_, centre.y * scale_}};
  stroke_paths({&dot, 1}, 2 * radius * scale_, fill);
}

void RasterCanvas::text(Point at, std::string_view utf8, const TextStyle& style) {
  const double width = text_width(utf8, style.size, style.bold);
  const double shift = style.anchor == Anchor::kStart    ? 0
                       : style.anchor == Anchor::kMiddle ? -width / 2
                                                         : -width;
  const double angle = style.degrees * std::numbers::pi / 180;
  const double cosine = std::cos(angle), sine = std::sin(angle);
  auto strokes = text_strokes(utf8, style.size, style.bold);
  for (auto& stroke : strokes)
    for (Point& p : stroke) {
      const double x = p.x + shift;
      p = {(at.x + x * cosine - p.y * sine) * scale_, (at.y + x * sine + p.y * cosine) * scale_};
    }
  stroke_paths(strokes, pen_width(style.size, style.bold) * scale_, style.color);
}

// Every pixel takes the cell under its centre: sharp edges, no seams.
void RasterCanvas::cells(const Rect& rect, size_t rows, size_t columns,
                         std::span<const Color> colors) {
  TEMPERA_CHECK(colors.size() == rows * columns, "cells: ", colors.size(), " colours given for ",
                rows, " x ", columns);
  if (colors.empty()) return;
  const double left = rect.x * scale_, top = rect.y * scale_;
  const double width = rect.width * scale_, height = rect.height * scale_;
  const Box box = pixels(left, top, left + width, top + height);
  const auto cell = [](size_t pixel, double start, double extent,
                       size_t count) -> std::optional<size_t> {
    const double t = (static_cast<double>(pixel) + 0.5 - start) / extent;
    if (!(t >= 0 && t < 1)) return std::nullopt;
    return std::min(static_cast<size_t>(t * static_cast<double>(count)), count - 1);
  };
  for (size_t y = box.y0; y < box.y1; ++y) {
    const auto row = cell(y, top, height, rows);
    for (size_t x = box.x0; row && x < box.x1; ++x)
      if (const auto column = cell(x, left, width, columns))
        blend(x, y, colors[*row * columns + *column], 1);
  }
}

void RasterCanvas::begin_clip(const Rect& rect) {
  clip_ = Rect{rect.x * scale_, rect.y * scale_, rect.width * scale_, rect.height * scale_};
}

void RasterCanvas::end_clip() { clip_.reset(); }

}  // namespace tempera::plot
