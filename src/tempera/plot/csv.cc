#include "tempera/plot/csv.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "tempera/base/error.h"

namespace tempera::plot {
namespace {

std::string exact(double value) {
  if (!std::isfinite(value)) return "";
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end.ptr};
}

// The n-th value where there is one.
std::string nth(const std::vector<double>& values, size_t n) {
  return n < values.size() ? exact(values[n]) : "";
}

class Lines {
 public:
  explicit Lines(const std::string& chart) : chart_(csv_field(chart)) {}

  void add(const std::string& series, const std::string& x, double y, const std::string& low = "",
           const std::string& high = "") {
    text_ += concat(chart_, ",", csv_field(series), ",", csv_field(x), ",", exact(y), ",", low, ",",
                    high, "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string chart_, text_;
};

void put(const LineChart& chart, Lines& lines) {
  for (const Series& series : chart.series)
    for (size_t i = 0; i < series.x.size(); ++i)
      lines.add(series.name, exact(series.x[i]), series.y[i], nth(series.low, i),
                nth(series.high, i));
}

void put(const BarChart& chart, Lines& lines) {
  for (const BarSeries& series : chart.series)
    for (size_t i = 0; i < series.values.size(); ++i) {
      const bool has_spread = i < series.spread.size();
      const double value = series.values[i], spread = has_spread ? series.spread[i] : 0;
      lines.add(series.name, chart.categories[i], value, has_spread ? exact(value - spread) : "",
                has_spread ? exact(value + spread) : "");
    }
}

void put(const HeatMap& chart, Lines& lines) {
  const auto label = [](const std::vector<std::string>& labels, size_t i) {
    return i < labels.size() ? labels[i] : std::to_string(i);
  };
  for (size_t row = 0; row < chart.rows; ++row)
    for (size_t column = 0; column < chart.columns; ++column)
      lines.add(label(chart.row_labels, row), label(chart.column_labels, column),
                chart.values.at(row * chart.columns + column));
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string to_csv(const Figure& figure) {
  std::string text = "chart,series,x,y,low,high\n";
  for (const Chart& panel : figure.panels)
    std::visit(
        [&](const auto& chart) {
          Lines lines(chart.title.empty() ? figure.title : chart.title);
          put(chart, lines);
          text += lines.text();
        },
        panel);
  return text;
}

}  // namespace tempera::plot
