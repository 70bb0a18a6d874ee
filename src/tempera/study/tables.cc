#include "tempera/study/tables.h"

#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/text_table.h"

namespace tempera::study {
namespace {

// After so many series the colours begin again.
constexpr size_t kColors = 8;

// Of several seeds; one has none.
std::optional<double> spread_of(const Summary& summary) {
  if (summary.seeds.size() < 2) return {};
  return summary.sd;
}

}  // namespace

std::vector<std::string> sizes_of(const MethodMetrics& methods) {
  std::vector<std::string> names;
  if (methods.empty()) return names;
  for (const auto& [size, summary] : methods.front().value) names.push_back(size);
  return names;
}

plot::LineChart metric_chart(const MethodMetrics& methods, plot::LineChart chart) {
  for (const auto& [method, metric] : methods) {
    plot::Series series{.name = method, .markers = true};
    series.dashed = chart.series.size() >= kColors;
    for (const auto& [size, summary] : metric) {
      series.x.push_back(std::stod(size));
      series.y.push_back(summary.mean);
      if (summary.seeds.size() > 1) {
        series.low.push_back(summary.mean - summary.ci95);
        series.high.push_back(summary.mean + summary.ci95);
      }
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::LineChart chart_by_size(const MethodMetrics& methods, plot::LineChart chart) {
  for (const auto& size : sizes_of(methods)) chart.x.ticks.push_back(std::stod(size));
  return metric_chart(methods, std::move(chart));
}

plot::Table metric_table(const MethodMetrics& methods, const std::string& caption, int decimals) {
  plot::Table table{.caption = caption, .header = {"method"}};
  for (const auto& size : sizes_of(methods)) table.header.push_back(size);
  for (const auto& [method, metric] : methods) {
    std::vector<plot::Cell> row{plot::Cell::of(method)};
    for (const auto& [size, summary] : metric)
      row.push_back(plot::Cell::of(summary.mean, spread_of(summary), decimals));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string metric_text(const MethodMetrics& methods, int decimals) {
  std::vector<std::string> head = {"method"};
  for (const auto& size : sizes_of(methods)) head.push_back(size);
  TextTable table(std::move(head));
  for (const auto& [method, metric] : methods) {
    std::vector<std::string> row = {method};
    for (const auto& [size, summary] : metric) {
      const auto spread = spread_of(summary);
      row.push_back(fixed(summary.mean, decimals) +
                    (spread ? " ± " + fixed(*spread, decimals) : ""));
    }
    table.add(std::move(row));
  }
  return table.text();
}

std::string over_seeds(int64_t seeds) {
  return seeds > 1 ? concat(", mean ± sd of ", seeds, " seeds") : ", one seed";
}

void say_how_made(plot::HtmlReport& report, const std::string& version, const Json& settings,
                  const std::string& command) {
  report.heading("How it was made");
  report.paragraph(concat("Tempera ", version, ", `", command, "`. The settings:"));
  report.code(settings.dump(2));
}

}  // namespace tempera::study
