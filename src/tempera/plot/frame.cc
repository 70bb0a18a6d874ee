#include "tempera/plot/frame.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tempera/plot/font.h"

namespace tempera::plot {
namespace {

constexpr double kSwatchWidth = 20, kSwatchGap = 6, kEntryGap = 16, kLegendLine = 17;
constexpr double kLongestLabel = 110;

void line(Canvas& canvas, Point a, Point b, const Stroke& stroke) {
  const std::array points{a, b};
  canvas.polyline(points, stroke);
}

void draw_swatch(Canvas& canvas, const LegendEntry& entry, double x, double middle) {
  if (entry.swatch == Swatch::kBox) {
    canvas.rect({x + 5, middle - 5, 10, 10}, entry.color);
    return;
  }
  if (entry.swatch != Swatch::kMarker) {
    Stroke stroke{entry.color, 2};
    if (entry.swatch == Swatch::kDashedLine) stroke.dashes = {5, 4};
    line(canvas, {x, middle}, {x + kSwatchWidth, middle}, stroke);
  }
  if (entry.swatch == Swatch::kMarker || entry.swatch == Swatch::kLineAndMarker)
    draw_marker(canvas, entry.marker, {x + kSwatchWidth / 2, middle}, 3.2, entry.color);
}

}  // namespace

void draw_marker(Canvas& canvas, size_t shape, Point at, double radius, Color color) {
  const auto [x, y] = at;
  const double r = radius;
  switch (shape % 4) {
    case 0:
      canvas.circle(at, r, color);
      break;
    case 1:
      canvas.rect({x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r}, color);
      break;
    case 2:
      canvas.polygon(
          std::array<Point, 3>{
              {{x, y - 1.25 * r}, {x + 1.15 * r, y + 0.85 * r}, {x - 1.15 * r, y + 0.85 * r}}},
          color);
      break;
    default:
      canvas.polygon(
          std::array<Point, 4>{
              {{x, y - 1.3 * r}, {x + 1.3 * r, y}, {x, y + 1.3 * r}, {x - 1.3 * r, y}}},
          color);
  }
}

Rect draw_title(Canvas& canvas, const Rect& rect, const std::string& title) {
  if (title.empty()) return rect;
  canvas.text({rect.x, rect.y + cap_height(kTitleSize) + 2},
              fit_text(title, kTitleSize, rect.width, /*bold=*/true),
              {.size = kTitleSize, .bold = true});
  const double used = kTitleSize + 8;
  return {rect.x, rect.y + used, rect.width, rect.height - used};
}

Rect draw_legend(Canvas& canvas, const Rect& rect, std::span<const LegendEntry> entries) {
  double x = rect.x, y = rect.y;
  bool any = false;
  for (const LegendEntry& entry : entries) {
    if (entry.name.empty()) continue;
    const double room = rect.width - kSwatchWidth - kSwatchGap;
    const std::string name = fit_text(entry.name, kTickSize, room);
    const double width = kSwatchWidth + kSwatchGap + text_width(name, kTickSize) * 1.03;
    if (any && x + width > rect.right()) {
      x = rect.x;
      y += kLegendLine;
    }
    const double middle = y + kLegendLine / 2;
    draw_swatch(canvas, entry, x, middle);
    canvas.text({x + kSwatchWidth + kSwatchGap, middle + cap_height(kTickSize) / 2}, name,
                {.size = kTickSize});
    x += width + kEntryGap;
    any = true;
  }
  if (!any) return rect;
  const double used = y + kLegendLine + 5 - rect.y;
  return {rect.x, rect.y + used, rect.width, rect.height - used};
}

void draw_no_data(Canvas& canvas, const Rect& rect) {
  canvas.text({rect.x + rect.width / 2, rect.y + rect.height / 2}, "no data",
              {.size = kLabelSize, .color = kMuted, .anchor = Anchor::kMiddle});
}

Scale make_scale(const Axis& axis, Range found) {
  const auto choose = [&](const std::optional<double>& limit, double otherwise) {
    const double value = limit.value_or(otherwise);
    return std::isfinite(value) && (!axis.log || value > 0) ? value : otherwise;
  };
  found = {choose(axis.min, found.low), choose(axis.max, found.high)};
  return {widen(found, axis.log), axis.log};
}

std::vector<Tick> axis_ticks(const Axis& axis, const Scale& scale, int target) {
  std::vector<Tick> ticks;
  for (const double value : axis.ticks)
    if (scale.inside(value)) ticks.push_back({value, short_number(value, 4)});
  return axis.ticks.empty() ? make_ticks(scale, target) : ticks;
}

double y_axis_width(const YAxis& axis) {
  double width = 0;
  for (const Tick& tick : axis.ticks) width = std::max(width, text_width(tick.label, kTickSize));
  return width + 8 + (axis.label.empty() ? 0 : kLabelSize + 8);
}

void draw_y_axis(Canvas& canvas, const Rect& area, const YAxis& axis) {
  for (const Tick& tick : axis.ticks) {
    const double y = area.bottom() - axis.scale.unit(tick.value) * area.height;
    line(canvas, {area.x, y}, {area.right(), y}, {kGrid, 1});
    canvas.text({area.x - 7, y + cap_height(kTickSize) / 2}, tick.label,
                {.size = kTickSize, .color = kMuted, .anchor = Anchor::kEnd});
  }
  if (axis.label.empty()) return;
  canvas.text({area.x - y_axis_width(axis) + cap_height(kLabelSize), area.y + area.height / 2},
              fit_text(axis.label, kLabelSize, area.height),
              {.size = kLabelSize, .anchor = Anchor::kMiddle, .degrees = -90});
}

XLabels layout_x_labels(std::vector<XLabel> labels, double width) {
  XLabels layout{std::move(labels), false, kTickSize + 8};
  if (layout.labels.empty()) return layout;
  const double each = width / static_cast<double>(layout.labels.size());
  double widest = 0;
  for (XLabel& label : layout.labels) widest = std::max(widest, text_width(label.text, kTickSize));
  if (widest + 6 <= each) return layout;
  // Short labels read better thinned than turned.
  layout.turned = widest > 30;
  const double needed = layout.turned ? kTickSize + 3 : widest + 6;
  const size_t keep_every = static_cast<size_t>(std::ceil(needed / each));
  std::vector<XLabel> kept;
  for (size_t i = 0; i < layout.labels.size(); i += keep_every)
    kept.push_back(std::move(layout.labels[i]));
  layout.labels = std::move(kept);
  if (!layout.turned) return layout;
  for (XLabel& label : layout.labels) label.text = fit_text(label.text, kTickSize, kLongestLabel);
  layout.height = std::min(widest, kLongestLabel) + 12;
  return layout;
}

void draw_x_axis(Canvas& canvas, const Rect& area, const XLabels& labels, const std::string& name,
                 bool tick_marks) {
  line(canvas, {area.x, area.bottom()}, {area.right(), area.bottom()}, {kMuted, 1});
  for (const auto& [x, text] : labels.labels) {
    if (tick_marks) line(canvas, {x, area.bottom()}, {x, area.bottom() + 4}, {kMuted, 1});
    const TextStyle style{.size = kTickSize,
                          .color = kMuted,
                          .anchor = labels.turned ? Anchor::kEnd : Anchor::kMiddle,
                          .degrees = labels.turned ? -90.0 : 0.0};
    canvas.text(labels.turned ? Point{x + cap_height(kTickSize) / 2, area.bottom() + 7}
                              : Point{x, area.bottom() + 7 + cap_height(kTickSize)},
                text, style);
  }
  if (!name.empty())
    canvas.text({area.x + area.width / 2, area.bottom() + labels.height + kLabelSize},
                fit_text(name, kLabelSize, area.width),
                {.size = kLabelSize, .anchor = Anchor::kMiddle});
}

}  // namespace tempera::plot
