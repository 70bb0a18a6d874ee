#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tempera/base/error.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/font.h"
#include "tempera/plot/frame.h"

namespace tempera::plot {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr double kBarWidth = 12, kBarGap = 12, kLongestRowLabel = 130, kCellSize = 9;
// Finer matrices than this are averaged down: a screen cannot show them.
constexpr size_t kMostCells = 1024;
constexpr Color kMissingCell = kGrid;

void check(const HeatMap& chart) {
  TEMPERA_CHECK(chart.values.size() == chart.rows * chart.columns, "heat map '", chart.title,
                "': ", chart.values.size(), " values given for ", chart.rows, " x ", chart.columns,
                " cells");
  const auto fits = [](const std::vector<std::string>& labels, size_t count) {
    return labels.empty() || labels.size() == count;
  };
  TEMPERA_CHECK(fits(chart.row_labels, chart.rows) && fits(chart.column_labels, chart.columns),
                "heat map '", chart.title, "': ", chart.row_labels.size(), " row and ",
                chart.column_labels.size(), " column labels given for ", chart.rows, " x ",
                chart.columns, " cells");
}

// The mean of the finite values in each block of cells that falls on one cell of the smaller
// matrix.
std::vector<double> reduce(const HeatMap& chart, size_t rows, size_t columns) {
  if (rows == chart.rows && columns == chart.columns) return chart.values;
  std::vector<double> means(rows * columns), counts(rows * columns);
  for (size_t r = 0; r < chart.rows; ++r)
    for (size_t c = 0; c < chart.columns; ++c) {
      const double value = chart.values[r * chart.columns + c];
      const size_t cell = r * rows / chart.rows * columns + c * columns / chart.columns;
      if (!std::isfinite(value)) continue;
      counts[cell] += 1;
      means[cell] += (value - means[cell]) / counts[cell];
    }
  for (size_t i = 0; i < means.size(); ++i)
    if (counts[i] == 0) means[i] = kNan;
  return means;
}

// The middle of a diverging scale is zero unless limits are given.
Scale value_scale(const HeatMap& chart, const std::vector<double>& values) {
  Range range = data_range(values, /*log=*/false);
  if (chart.scale == ColorScale::kDiverging) {
    const double reach = std::max(std::abs(range.low), std::abs(range.high));
    range = {-reach, reach};
  }
  return make_scale({.min = chart.min, .max = chart.max}, range);
}

Color cell_color(const HeatMap& chart, const Scale& scale, double value) {
  return std::isfinite(value) ? scale_color(chart.scale, scale.unit(value)) : kMissingCell;
}

double widest(const std::vector<std::string>& labels) {
  double width = 0;
  for (const std::string& label : labels) width = std::max(width, text_width(label, kTickSize));
  return width;
}

void draw_scale_bar(Canvas& canvas, const Rect& bar, const HeatMap& chart, const Scale& scale,
                    const std::vector<Tick>& ticks) {
  constexpr size_t kSteps = 64;
  std::vector<Color> colors;
  for (size_t i = 0; i < kSteps; ++i)
    colors.push_back(scale_color(chart.scale, 1 - static_cast<double>(i) / (kSteps - 1)));
  canvas.cells(bar, kSteps, 1, colors);
  for (const Tick& tick : ticks) {
    const double y = bar.bottom() - scale.unit(tick.value) * bar.height;
    canvas.polyline(std::array<Point, 2>{{{bar.right(), y}, {bar.right() + 3, y}}}, {kMuted, 1});
    canvas.text({bar.right() + 6, y + cap_height(kTickSize) / 2}, tick.label,
                {.size = kTickSize, .color = kMuted});
  }
}

void draw_row_labels(Canvas& canvas, const Rect& area, const std::vector<std::string>& labels) {
  const double height = area.height / static_cast<double>(labels.size());
  const auto every = static_cast<size_t>(std::ceil((kTickSize + 2) / height));
  for (size_t i = 0; i < labels.size(); i += every)
    canvas.text(
        {area.x - 6, area.y + height * (static_cast<double>(i) + 0.5) + cap_height(kTickSize) / 2},
        fit_text(labels[i], kTickSize, kLongestRowLabel),
        {.size = kTickSize, .color = kMuted, .anchor = Anchor::kEnd});
}

void draw_values(Canvas& canvas, const Rect& area, const HeatMap& chart, const Scale& scale) {
  const double width = area.width / static_cast<double>(chart.columns);
  const double height = area.height / static_cast<double>(chart.rows);
  if (height < kCellSize + 3 || width < 8) return;
  std::vector<std::string> texts;
  for (const double value : chart.values) texts.push_back(fixed_number(value, chart.decimals));
  double longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text_width(text, kCellSize));
  if (longest + 4 > width) return;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!std::isfinite(chart.values[i])) continue;
    const size_t row = i / chart.columns, column = i % chart.columns;
    const Point centre{area.x + width * (static_cast<double>(column) + 0.5),
                       area.y + height * (static_cast<double>(row) + 0.5)};
    const Color background = cell_color(chart, scale, chart.values[i]);
    canvas.text({centre.x, centre.y + cap_height(kCellSize) / 2}, texts[i],
                {.size = kCellSize, .color = text_on(background), .anchor = Anchor::kMiddle});
  }
}

}  // namespace

void draw(Canvas& canvas, const Rect& rect, const HeatMap& chart) {
  check(chart);
  const Rect rest = draw_title(canvas, rect, chart.title);
  if (chart.values.empty()) return draw_no_data(canvas, rest);
  const size_t rows = std::min(chart.rows, kMostCells),
               columns = std::min(chart.columns, kMostCells);
  const std::vector<double> values = reduce(chart, rows, columns);
  const Scale scale = value_scale(chart, values);
  const std::vector<Tick> ticks = make_ticks(scale, 5);
  double tick_width = 0;
  for (const Tick& tick : ticks)
    tick_width = std::max(tick_width, text_width(tick.label, kTickSize));

  const double name_room = chart.y_label.empty() ? 0 : kLabelSize + 8;
  const double bar_room =
      kBarGap + kBarWidth + 8 + tick_width + (chart.scale_label.empty() ? 0 : kLabelSize + 6);
  Rect area = rest;
  area.x += name_room + std::min(widest(chart.row_labels), kLongestRowLabel) +
            (chart.row_labels.empty() ? 0 : 8);
  area.width = rest.right() - area.x - bar_room;
  std::vector<XLabel> labels;
  const double cell = area.width / static_cast<double>(chart.columns);
  for (size_t i = 0; i < chart.column_labels.size(); ++i)
    labels.push_back({area.x + cell * (static_cast<double>(i) + 0.5), chart.column_labels[i]});
  XLabels x_labels = layout_x_labels(std::move(labels), area.width);
  if (chart.column_labels.empty()) x_labels.height = 4;
  area.y += 4;
  area.height =
      rest.bottom() - area.y - x_labels.height - (chart.x_label.empty() ? 0 : kLabelSize + 5);

  std::vector<Color> colors;
  for (const double value : values) colors.push_back(cell_color(chart, scale, value));
  canvas.cells(area, rows, columns, colors);
  if (chart.show_values && rows == chart.rows && columns == chart.columns)
    draw_values(canvas, area, chart, scale);
  if (!chart.row_labels.empty()) draw_row_labels(canvas, area, chart.row_labels);
  draw_x_axis(canvas, area, x_labels, chart.x_label, /*tick_marks=*/false);
  const double middle = area.y + area.height / 2;
  if (!chart.y_label.empty())
    canvas.text({rest.x + cap_height(kLabelSize), middle},
                fit_text(chart.y_label, kLabelSize, area.height),
                {.size = kLabelSize, .anchor = Anchor::kMiddle, .degrees = -90});
  draw_scale_bar(canvas, {area.right() + kBarGap, area.y, kBarWidth, area.height}, chart, scale,
                 ticks);
  if (!chart.scale_label.empty())
    canvas.text({rest.right() - 3, middle}, fit_text(chart.scale_label, kLabelSize, area.height),
                {.size = kLabelSize, .anchor = Anchor::kMiddle, .degrees = -90});
}

}  // namespace tempera::plot
