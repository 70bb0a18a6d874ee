#include <algorithm>
#include <array>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/font.h"
#include "tempera/plot/frame.h"

namespace tempera::plot {
namespace {

// More points than this on a line are thinned to what the picture can show.
constexpr size_t kMostPoints = 1500;

void check(const Series& series) {
  const size_t count = series.x.size();
  TEMPERA_CHECK(series.y.size() == count, "chart series '", series.name, "': ", count,
                " x values and ", series.y.size(), " y values given, as many of both expected");
  TEMPERA_CHECK(
      series.low.size() == series.high.size() && (series.low.empty() || series.low.size() == count),
      "chart series '", series.name, "': an interval of ", series.low.size(), " low and ",
      series.high.size(), " high values given for ", count, " points, as many or none expected");
}

Scale scale_of_x(const LineChart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series)
    values.insert(values.end(), series.x.begin(), series.x.end());
  for (const Guide& guide : chart.guides)
    if (guide.vertical) values.push_back(guide.at);
  return make_scale(chart.x, data_range(values, chart.x.log));
}

// A little room above and below the data, but none below a zero that bounds it.
Scale scale_of_y(const LineChart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series)
    for (const auto* part : {&series.y, &series.low, &series.high})
      values.insert(values.end(), part->begin(), part->end());
  for (const Guide& guide : chart.guides)
    if (!guide.vertical) values.push_back(guide.at);
  Range range = data_range(values, chart.y.log);
  if (chart.y.log) {
    const double room = std::pow(range.high / range.low, 0.04);
    range = {range.low / room, range.high * room};
  } else {
    // A difference in the fifth digit is not to look like one in the first.
    const double least = 1e-3 * std::max(std::abs(range.low), std::abs(range.high));
    const double span = range.high - range.low;
    const double room = std::max(span * 0.04, (least - span) / 2);
    range = {range.low >= 0 ? std::max(0.0, range.low - room) : range.low - room,
             range.high + room};
  }
  return make_scale(chart.y, range);
}

class LinePlot {
 public:
  LinePlot(Canvas& canvas, const Rect& area, const Scale& x, const Scale& y)
      : canvas_(canvas), area_(area), x_(x), y_(y) {}

  void band(const Series& series, Color color) const {
    for_runs(
        series.x.size(),
        [&](size_t i) {
          return x_.shows(series.x[i]) && y_.shows(series.low[i]) && y_.shows(series.high[i]);
        },
        [&](size_t begin, size_t end) {
          std::vector<Point> outline;
          for (size_t i = begin; i < end; ++i) outline.push_back(at(series.x[i], series.high[i]));
          outline = thin(outline);
          std::vector<Point> lower;
          for (size_t i = begin; i < end; ++i) lower.push_back(at(series.x[i], series.low[i]));
          lower = thin(lower);
          outline.insert(outline.end(), lower.rbegin(), lower.rend());
          canvas_.polygon(outline, with_alpha(color, 0.18));
        });
  }

  void line(const Series& series, Color color) const {
    Stroke stroke{color, 1.8};
    if (series.dashed) stroke.dashes = {6, 4};
    for_runs(
        series.x.size(), [&](size_t i) { return x_.shows(series.x[i]) && y_.shows(series.y[i]); },
        [&](size_t begin, size_t end) {
          std::vector<Point> points;
          for (size_t i = begin; i < end; ++i) points.push_back(at(series.x[i], series.y[i]));
          canvas_.polyline(thin(points), stroke);
        });
  }

  // Not clipped, so that a point at the edge is a whole one.
  void markers(const Series& series, size_t shape, Color color) const {
    for (size_t i = 0; i < series.x.size(); ++i)
      if (x_.inside(series.x[i]) && y_.inside(series.y[i]))
        draw_marker(canvas_, shape, at(series.x[i], series.y[i]), 3.2, color);
  }

  void guide(const Guide& guide) const {
    if (!shows(guide)) return;
    const double x = at_x(guide.at), y = at_y(guide.at);
    const std::array<Point, 2> ends =
        guide.vertical ? std::array<Point, 2>{{{x, area_.y}, {x, area_.bottom()}}}
                       : std::array<Point, 2>{{{area_.x, y}, {area_.right(), y}}};
    canvas_.polyline(ends, {kMuted, 1, {4, 4}});
  }

  // Over the data, on a patch of paper, so that it stays legible.
  void guide_label(const Guide& guide) const {
    if (!shows(guide) || guide.label.empty()) return;
    const double width = text_width(guide.label, kTickSize), height = cap_height(kTickSize);
    Point at{area_.x + 6, at_y(guide.at) - 5};
    if (guide.vertical) {
      const double x = at_x(guide.at);
      at = {x + 6 + width < area_.right() ? x + 6 : x - 6 - width, area_.y + height + 2};
    }
    canvas_.rect({at.x - 2, at.y - height - 2, width + 4, height + 4}, with_alpha(kPaper, 0.8));
    canvas_.text(at, guide.label, {.size = kTickSize, .color = kMuted});
  }

 private:
  bool shows(const Guide& guide) const { return (guide.vertical ? x_ : y_).inside(guide.at); }
  double at_x(double value) const { return area_.x + x_.unit(value) * area_.width; }
  double at_y(double value) const { return area_.bottom() - y_.unit(value) * area_.height; }
  Point at(double x, double y) const { return {at_x(x), at_y(y)}; }

  // Calls run(begin, end) for every longest stretch of points that can be shown.
  template <class Shown, class Run>
  static void for_runs(size_t count, Shown shown, Run run) {
    for (size_t begin = 0; begin < count; ++begin) {
      if (!shown(begin)) continue;
      size_t end = begin + 1;
      while (end < count && shown(end)) ++end;
      run(begin, end);
      begin = end;
    }
  }

  // Keeps the first, lowest, highest and last point of every half point of width: the same picture.
  static std::vector<Point> thin(const std::vector<Point>& points) {
    if (points.size() <= kMostPoints) return points;
    const auto column = [](const Point& p) { return std::floor(p.x * 2); };
    std::vector<Point> kept;
    for (size_t begin = 0; begin < points.size();) {
      size_t end = begin, lowest = begin, highest = begin;
      for (; end < points.size() && column(points[end]) == column(points[begin]); ++end) {
        if (points[end].y < points[lowest].y) lowest = end;
        if (points[end].y > points[highest].y) highest = end;
      }
      std::array order{begin, std::min(lowest, highest), std::max(lowest, highest), end - 1};
      const auto unique = std::unique(order.begin(), order.end());
      for (auto i = order.begin(); i != unique; ++i) kept.push_back(points[*i]);
      begin = end;
    }
    return kept;
  }

  Canvas& canvas_;
  const Rect& area_;
  const Scale& x_;
  const Scale& y_;
};

Swatch swatch_of(const Series& series) {
  if (!series.line) return Swatch::kMarker;
  if (series.dashed) return Swatch::kDashedLine;
  return series.markers ? Swatch::kLineAndMarker : Swatch::kLine;
}

Color color_of(const Series& series, size_t index) {
  return series.color.value_or(series_color(index));
}

bool has_points(const LineChart& chart, const Scale& x, const Scale& y) {
  for (const Series& series : chart.series)
    for (size_t i = 0; i < series.x.size(); ++i)
      if (x.shows(series.x[i]) && y.shows(series.y[i])) return true;
  return false;
}

}  // namespace

void draw(Canvas& canvas, const Rect& rect, const LineChart& chart) {
  for (const Series& series : chart.series) check(series);
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < chart.series.size(); ++i)
    legend.push_back(
        {chart.series[i].name, color_of(chart.series[i], i), swatch_of(chart.series[i]), i});
  const Rect rest = draw_legend(canvas, draw_title(canvas, rect, chart.title), legend);

  const Scale x = scale_of_x(chart), y = scale_of_y(chart);
  const YAxis y_axis{chart.y.label, axis_ticks(chart.y, y, static_cast<int>(rest.height / 50)), y};
  Rect area = rest;
  area.x += y_axis_width(y_axis);
  area.width = rest.right() - area.x - 12;
  const auto place = [&](double value) { return area.x + x.unit(value) * area.width; };
  std::vector<XLabel> labels;
  for (const Tick& tick : axis_ticks(chart.x, x, static_cast<int>(area.width / 70)))
    labels.push_back({place(tick.value), tick.label});
  const XLabels x_labels = layout_x_labels(std::move(labels), area.width);
  area.y += 6;
  area.height =
      rest.bottom() - area.y - x_labels.height - (chart.x.label.empty() ? 0 : kLabelSize + 5);

  draw_y_axis(canvas, area, y_axis);
  draw_x_axis(canvas, area, x_labels, chart.x.label, /*tick_marks=*/true);
  const LinePlot plot(canvas, area, x, y);
  for (const Guide& guide : chart.guides) plot.guide(guide);
  if (!has_points(chart, x, y)) return draw_no_data(canvas, area);
  canvas.begin_clip(area);
  for (size_t i = 0; i < chart.series.size(); ++i)
    if (!chart.series[i].low.empty()) plot.band(chart.series[i], color_of(chart.series[i], i));
  for (size_t i = 0; i < chart.series.size(); ++i)
    if (chart.series[i].line) plot.line(chart.series[i], color_of(chart.series[i], i));
  canvas.end_clip();
  for (size_t i = 0; i < chart.series.size(); ++i)
    if (chart.series[i].markers || !chart.series[i].line)
      plot.markers(chart.series[i], i, color_of(chart.series[i], i));
  for (const Guide& guide : chart.guides) plot.guide_label(guide);
}

}  // namespace tempera::plot
