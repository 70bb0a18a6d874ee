#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tempera/plot/canvas.h"
#include "tempera/plot/color.h"

namespace tempera::plot {

struct Axis {
  std::string label = {};
  bool log = false;
  std::optional<double> min = {}, max = {};  // found from the data when not given
  std::vector<double> ticks = {};            // where to put ticks, instead of round values
};

// Values that are not finite, or not positive on a logarithmic axis, are left out and break the
// line.
struct Series {
  std::string name = {};
  std::vector<double> x = {}, y = {};
  std::vector<double> low = {}, high = {};  // the shaded interval, empty for none
  bool line = true;
  bool markers = false;
  bool dashed = false;
  std::optional<Color> color = {};  // the palette's next when not given
};

// A dashed line across the chart at one value of x or of y.
struct Guide {
  double at = 0;
  std::string label = {};
  bool vertical = true;
};

struct LineChart {
  std::string title = {};
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  std::vector<Guide> guides = {};
};

struct BarSeries {
  std::string name = {};
  std::vector<double> values = {};  // one for each category
  std::vector<double> spread = {};  // half the error bar, empty for none
};

struct BarChart {
  std::string title = {};
  std::string x_label = {};
  Axis y = {};  // linear; always shows zero
  std::vector<std::string> categories = {};
  std::vector<BarSeries> series = {};
  int decimals = 1;         // of the values written over the bars
  bool show_values = true;  // where they fit
};

struct HeatMap {
  std::string title = {};
  std::string x_label = {}, y_label = {};
  size_t rows = 0, columns = 0;
  std::vector<double> values = {};                               // row by row from the top
  std::vector<std::string> row_labels = {}, column_labels = {};  // empty, or one each
  std::optional<double> min = {}, max = {};
  ColorScale scale = ColorScale::kSequential;
  std::string scale_label = {};
  int decimals = 2;          // of the values written into the cells
  bool show_values = false;  // where they fit
};

using Chart = std::variant<LineChart, BarChart, HeatMap>;

// Charts in a grid, row by row, under one title.
struct Figure {
  std::string title = {};
  std::vector<Chart> panels = {};
  size_t columns = 1;
  double panel_width = 520, panel_height = 340;
};

void draw(Canvas& canvas, const Rect& rect, const LineChart& chart);
void draw(Canvas& canvas, const Rect& rect, const BarChart& chart);
void draw(Canvas& canvas, const Rect& rect, const HeatMap& chart);

// A whole SVG document, which is also what goes inline into a page.
std::string to_svg(const Figure& figure);

// A PNG file's bytes, `scale` pixels a point.
std::vector<uint8_t> to_png(const Figure& figure, double scale = 2);

// Writes .svg or .png, by the name's extension.
void save(const Figure& figure, const std::filesystem::path& path);

}  // namespace tempera::plot
