#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tempera/plot/canvas.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/ticks.h"

// What the kinds of chart share: title, legend, axes, markers.
namespace tempera::plot {

inline constexpr double kTitleSize = 13, kLabelSize = 11, kTickSize = 10;

enum class Swatch : uint8_t { kLine, kDashedLine, kMarker, kLineAndMarker, kBox };

struct LegendEntry {
  std::string name;
  Color color;
  Swatch swatch;
  size_t marker = 0;
};

// The n-th marker shape, so that series can be told apart without colour.
void draw_marker(Canvas& canvas, size_t shape, Point at, double radius, Color color);

// Each draws at the top of the rectangle and returns what is left below.
Rect draw_title(Canvas& canvas, const Rect& rect, const std::string& title);
Rect draw_legend(Canvas& canvas, const Rect& rect, std::span<const LegendEntry> entries);

// In the middle of a chart that has nothing to show.
void draw_no_data(Canvas& canvas, const Rect& rect);

// The axis' own limits where given, the range found otherwise.
Scale make_scale(const Axis& axis, Range found);

// Explicit ticks that lie inside the scale, or round ones.
std::vector<Tick> axis_ticks(const Axis& axis, const Scale& scale, int target);

struct YAxis {
  std::string label;
  std::vector<Tick> ticks;
  const Scale& scale;
};
// Room that the labels of a y axis take on the left.
double y_axis_width(const YAxis& axis);
// Horizontal grid lines and labels to the left of the area.
void draw_y_axis(Canvas& canvas, const Rect& area, const YAxis& axis);

struct XLabel {
  double at;  // x coordinate
  std::string text;
};
// How the labels below an area are laid out: turned when they would overlap, thinned when even that
// is not enough.
struct XLabels {
  std::vector<XLabel> labels;
  bool turned = false;
  double height = 0;
};
XLabels layout_x_labels(std::vector<XLabel> labels, double width);
// Base line, labels and the axis' name below the area.
void draw_x_axis(Canvas& canvas, const Rect& area, const XLabels& labels, const std::string& name,
                 bool tick_marks);

}  // namespace tempera::plot
