#include "tempera/study/tables.h"

#include <cmath>
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

std::string verdict(const MethodMetrics& methods, const Judged& judged) {
  TEMPERA_CHECK(!methods.empty() && !methods.front().value.empty(), "no method was measured");
  const auto last = [](const Named<Metric>& method) -> const Summary& {
    return method.value.back().value;
  };
  const Named<Metric>& first = methods.front();
  const Named<Metric>* best = &first;
  for (const auto& method : methods) {
    TEMPERA_CHECK(!method.value.empty(), method.name, " was not measured");
    const double gain = last(method).mean - last(*best).mean;
    if (judged.higher_is_better ? gain > 0 : gain < 0) best = &method;
  }
  const auto value = [&](const Named<Metric>& method) {
    return concat(fixed(last(method).mean, judged.decimals), judged.unit, " with ", method.name);
  };
  const std::string where =
      judged.size.empty() ? "" : concat(" at ", first.value.back().name, " ", judged.size);
  if (methods.size() == 1)
    return concat("There is one method: ", judged.what, where, " is ", value(first), ".");
  if (best == &first)
    return concat("No method does better than ", first.name, ", the first: ", judged.what, where,
                  " is ", value(first), ".");
  std::string text = concat("The best is ", best->name, ": ", judged.what, where, " is ",
                            value(*best), " and ", value(first), ", the first method");
  const size_t seeds = last(first).seeds.size();
  if (seeds < 2) return text + ". One seed cannot tell that from chance.";
  if (const auto& p = last(*best).p_against_first)
    return concat(text, *p < 0.05 ? ". Over " : ". That may be chance: over ", seeds,
                  " seeds p is ", fixed(*p, 3), ".");
  const bool apart =
      std::abs(last(*best).mean - last(first).mean) > last(*best).ci95 + last(first).ci95;
  return concat(text, ". Over ", seeds, " seeds their 95 % intervals ",
                apart ? "lie apart." : "overlap.");
}

std::string over_seeds(int64_t seeds) {
  return seeds > 1 ? concat(", mean ± sd of ", seeds, " seeds") : ", one seed";
}

void say_how_made(plot::HtmlReport& report, const std::string& version, const Json& settings,
                  const std::string& command) {
  report.how_made(concat("Tempera ", version), command, settings.dump(2));
}

}  // namespace tempera::study
