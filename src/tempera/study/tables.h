#pragma once

#include <string>
#include <vector>

#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"
#include "tempera/study/record.h"
#include "tempera/study/statistics.h"

// Results of a study by method as charts and tables.
namespace tempera::study {

// One metric of a method, by the size that it was measured at; empty: it was not.
using Metric = ByName<Summary>;
// The same of several methods.
using MethodMetrics = ByName<Metric>;

// What the methods have of a metric, without those that lack it.
template <class Result>
MethodMetrics metric_of(const ByName<Result>& methods, Metric Result::*metric) {
  MethodMetrics rows;
  for (const auto& [name, result] : methods)
    if (!(result.*metric).empty()) rows.push_back({name, result.*metric});
  return rows;
}

// Of what every seed's result measured under the same names.
template <class Seed>
Metric summarise(const std::vector<Seed>& seeds, ByName<double> Seed::*metric) {
  Metric summaries;
  for (size_t i = 0; i < (seeds.front().*metric).size(); ++i) {
    std::vector<double> values;
    for (const Seed& seed : seeds) values.push_back((seed.*metric).at(i).value);
    summaries.push_back({(seeds.front().*metric)[i].name, summarise(std::move(values))});
  }
  return summaries;
}

// Those of the first method.
std::vector<std::string> sizes_of(const MethodMetrics& methods);

// One line a method: the mean against the size, with its 95 % interval. `chart` has the titles.
plot::LineChart metric_chart(const MethodMetrics& methods, plot::LineChart chart);

// The same with a tick at every size, which are numbers.
plot::LineChart chart_by_size(const MethodMetrics& methods, plot::LineChart chart);

// mean ± standard deviation, a row a method, a column a size.
plot::Table metric_table(const MethodMetrics& methods, const std::string& caption, int decimals);
// The same for a terminal.
std::string metric_text(const MethodMetrics& methods, int decimals);

// Those of a member of the methods' results.
template <class Result>
plot::Table metric_table(const ByName<Result>& methods, Metric Result::*metric,
                         const std::string& caption, int decimals) {
  return metric_table(metric_of(methods, metric), caption, decimals);
}
template <class Result>
std::string metric_text(const ByName<Result>& methods, Metric Result::*metric, int decimals) {
  return metric_text(metric_of(methods, metric), decimals);
}

// What a metric says about the methods at the last of its sizes.
struct Judged {
  std::string what;       // "the accuracy"
  std::string unit = {};  // " %"
  std::string size = {};  // "entries"; empty: the metric has one size alone
  bool higher_is_better = true;
  int decimals = 1;
};
// The best method and the first one in a sentence, with the test or the intervals of their seeds.
std::string verdict(const MethodMetrics& methods, const Judged& judged);

// ", mean ± sd of 3 seeds": what the figures of a table are.
std::string over_seeds(int64_t seeds);

// The last part of a report: version, command and settings.
void say_how_made(plot::HtmlReport& report, const std::string& version, const Json& settings,
                  const std::string& command);

}  // namespace tempera::study
