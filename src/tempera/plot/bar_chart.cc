#include <algorithm>
#include <array>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/font.h"
#include "tempera/plot/frame.h"

namespace tempera::plot {
namespace {

void check(const BarChart& chart) {
  TEMPERA_CHECK(!chart.y.log, "bar chart '", chart.title,
                "': bars start at zero and need a linear axis");
  for (const BarSeries& series : chart.series) {
    TEMPERA_CHECK(series.values.size() == chart.categories.size(), "bar series '", series.name,
                  "': ", series.values.size(), " values given for ", chart.categories.size(),
                  " categories");
    TEMPERA_CHECK(series.spread.empty() || series.spread.size() == series.values.size(),
                  "bar series '", series.name, "': ", series.spread.size(), " spreads given for ",
                  series.values.size(), " values");
  }
}

double spread_of(const BarSeries& series, size_t i) {
  return series.spread.empty() || !std::isfinite(series.spread[i]) ? 0 : std::abs(series.spread[i]);
}

Scale scale_of_y(const BarChart& chart) {
  std::vector<double> values{0};
  bool any = false;
  for (const BarSeries& series : chart.series)
    for (size_t i = 0; i < series.values.size(); ++i) {
      values.push_back(series.values[i] - spread_of(series, i));
      values.push_back(series.values[i] + spread_of(series, i));
      any = any || std::isfinite(series.values[i]);
    }
  if (!any) values.push_back(1);
  Range range = data_range(values, /*log=*/false);
  if (range.low < 0 && range.high > 0 &&
      std::all_of(values.begin(), values.end(), [](double v) { return v == 0; }))
    range = {0, 1};
  const double room = (range.high - range.low) * 0.08;
  range = {range.low < 0 ? range.low - room : 0, range.high > 0 ? range.high + room : 0};
  return make_scale(chart.y, range);
}

class BarPlot {
 public:
  BarPlot(Canvas& canvas, const Rect& area, const Scale& y, const BarChart& chart)
      : canvas_(canvas), area_(area), y_(y), chart_(chart) {
    slot_ = area.width / static_cast<double>(chart.categories.size());
    bar_ = std::min(slot_ * 0.78 / static_cast<double>(chart.series.size()), 60.0);
    for (const BarSeries& series : chart.series)
      for (const double value : series.values)
        widest_ = std::max(widest_, text_width(fixed_number(value, chart.decimals), kValueSize));
  }

  // Where the bars start, when that is not the bottom of the area.
  void draw_zero() const {
    if (y_.range().low < 0 && y_.inside(0))
      canvas_.polyline(std::array<Point, 2>{{{area_.x, at_y(0)}, {area_.right(), at_y(0)}}},
                       {kMuted, 1});
  }

  double centre(size_t category) const {
    return area_.x + slot_ * (static_cast<double>(category) + 0.5);
  }

  void draw_bar(size_t s, size_t category) const {
    const BarSeries& series = chart_.series[s];
    const double value = series.values[category];
    if (!std::isfinite(value)) return;
    const double shift = static_cast<double>(s) - static_cast<double>(chart_.series.size()) / 2;
    const double left = centre(category) + bar_ * shift;
    const double zero = at_y(0), top = at_y(value);
    const double gap = bar_ > 6 ? 1 : 0;
    canvas_.rect({left + gap, std::min(zero, top), bar_ - 2 * gap, std::abs(zero - top)},
                 series_color(s));
    const double spread = spread_of(series, category);
    const double middle = left + bar_ / 2;
    if (spread > 0) draw_spread(middle, at_y(value - spread), at_y(value + spread));
    if (!chart_.show_values || widest_ > bar_ + 4) return;
    const double edge = value < 0 ? std::max(at_y(value - spread) + 3 + cap_height(kValueSize), 0.0)
                                  : at_y(value + spread) - 4;
    canvas_.text({middle, std::clamp(edge, area_.y + cap_height(kValueSize), area_.bottom() - 1)},
                 fixed_number(value, chart_.decimals),
                 {.size = kValueSize, .anchor = Anchor::kMiddle});
  }

 private:
  static constexpr double kValueSize = 9;

  // Bars end at the edge of the area when the axis has limits of its own.
  double at_y(double value) const {
    return area_.bottom() - std::clamp(y_.unit(value), 0.0, 1.0) * area_.height;
  }

  void draw_spread(double x, double low, double high) const {
    const Stroke stroke{kInk, 1.1};
    const double cap = std::min(4.0, bar_ / 4);
    canvas_.polyline(std::array<Point, 2>{{{x, low}, {x, high}}}, stroke);
    for (const double y : {low, high})
      canvas_.polyline(std::array<Point, 2>{{{x - cap, y}, {x + cap, y}}}, stroke);
  }

  Canvas& canvas_;
  const Rect& area_;
  const Scale& y_;
  const BarChart& chart_;
  double slot_ = 0, bar_ = 0, widest_ = 0;
};

}  // namespace

void draw(Canvas& canvas, const Rect& rect, const BarChart& chart) {
  check(chart);
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < chart.series.size(); ++i)
    legend.push_back({chart.series[i].name, series_color(i), Swatch::kBox});
  const Rect rest = draw_legend(canvas, draw_title(canvas, rect, chart.title), legend);
  if (chart.categories.empty() || chart.series.empty()) return draw_no_data(canvas, rest);

  const Scale y = scale_of_y(chart);
  const YAxis y_axis{chart.y.label, axis_ticks(chart.y, y, static_cast<int>(rest.height / 50)), y};
  Rect area = rest;
  area.x += y_axis_width(y_axis);
  area.width = rest.right() - area.x - 4;
  area.y += 6;
  std::vector<XLabel> labels;
  const BarPlot widths(canvas, area, y, chart);
  for (size_t i = 0; i < chart.categories.size(); ++i)
    labels.push_back({widths.centre(i), chart.categories[i]});
  const XLabels x_labels = layout_x_labels(std::move(labels), area.width);
  area.height =
      rest.bottom() - area.y - x_labels.height - (chart.x_label.empty() ? 0 : kLabelSize + 5);

  draw_y_axis(canvas, area, y_axis);
  const BarPlot plot(canvas, area, y, chart);
  for (size_t category = 0; category < chart.categories.size(); ++category)
    for (size_t s = 0; s < chart.series.size(); ++s) plot.draw_bar(s, category);
  plot.draw_zero();
  draw_x_axis(canvas, area, x_labels, chart.x_label, /*tick_marks=*/false);
}

}  // namespace tempera::plot
