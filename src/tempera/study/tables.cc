#include "tempera/study/tables.h"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/study/statistics.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

// After so many series the colours begin again.
constexpr size_t kColors = 8;

// Of several seeds; one has none.
std::optional<double> spread_of(const Json& values) {
  if (values.at("seeds").size() < 2) return {};
  return values.at("sd").get<double>();
}

}  // namespace

Json summary(const std::vector<double>& values) {
  return {{"mean", mean(values)},
          {"sd", standard_deviation(values)},
          {"ci95", confidence_half_width(values)},
          {"seeds", values}};
}

Json summarise(const std::vector<Json>& seeds, const std::string& metric) {
  Json by_key = Json::object();
  for (const auto& [key, first] : seeds.front().at(metric).items()) {
    std::vector<double> values;
    for (const Json& seed : seeds) values.push_back(seed.at(metric).at(key).get<double>());
    by_key[key] = summary(values);
  }
  return by_key;
}

std::vector<std::string> sizes_of(const Json& methods, const std::string& metric) {
  std::vector<std::string> names;
  for (const auto& [method, result] : methods.items()) {
    if (!result.contains(metric)) continue;
    for (const auto& [size, row] : result.at(metric).items()) names.push_back(size);
    break;
  }
  return names;
}

plot::LineChart metric_chart(const Json& methods, const std::string& metric,
                             plot::LineChart chart) {
  for (const auto& [method, result] : methods.items()) {
    if (!result.contains(metric)) continue;
    plot::Series series{.name = method, .markers = true};
    series.dashed = chart.series.size() >= kColors;
    for (const auto& [size, row] : result.at(metric).items()) {
      const double mean = row.at("mean"), half = row.at("ci95");
      series.x.push_back(std::stod(size));
      series.y.push_back(mean);
      if (row.at("seeds").size() > 1) {
        series.low.push_back(mean - half);
        series.high.push_back(mean + half);
      }
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::Table metric_table(const Json& methods, const std::string& metric, const std::string& caption,
                         int decimals) {
  plot::Table table{.caption = caption, .header = {"method"}};
  for (const auto& size : sizes_of(methods, metric)) table.header.push_back(size);
  for (const auto& [method, result] : methods.items()) {
    if (!result.contains(metric)) continue;
    std::vector<plot::Cell> row{plot::Cell::of(method)};
    for (const auto& [size, values] : result.at(metric).items())
      row.push_back(plot::Cell::of(values.at("mean").get<double>(), spread_of(values), decimals));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string metric_text(const Json& methods, const std::string& metric, int decimals) {
  std::vector<std::vector<std::string>> lines = {{"method"}};
  for (const auto& size : sizes_of(methods, metric)) lines[0].push_back(size);
  for (const auto& [method, result] : methods.items()) {
    if (!result.contains(metric)) continue;
    lines.push_back({method});
    for (const auto& [size, row] : result.at(metric).items()) {
      lines.back().push_back(fixed(row.at("mean"), decimals));
      if (const auto spread = spread_of(row))
        lines.back().back() += " ± " + fixed(*spread, decimals);
    }
  }
  return aligned(lines);
}

std::string over_seeds(int64_t seeds) {
  return seeds > 1 ? concat(", mean ± sd of ", seeds, " seeds") : ", one seed";
}

void say_how_made(plot::HtmlReport& report, const Json& document, const std::string& command) {
  report.heading("How it was made");
  report.paragraph(concat("Tempera ", document.at("tempera").get<std::string>(), ", `", command,
                          "`. The settings:"));
  report.code(document.at("settings").dump(2));
}

std::string aligned(const std::vector<std::vector<std::string>>& lines) {
  // Of a character that is several bytes, such as "±", only the first counts.
  const auto columns = [](const std::string& text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], columns(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - columns(line[i]), ' ');
      text += i == 0 ? line[i] + space : "  " + space + line[i];
    }
    text += "\n";
  }
  return text;
}

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

}  // namespace tempera::study
