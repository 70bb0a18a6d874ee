#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"

// Results of a study by method, {method: {metric: {size: summary}}}, as charts and tables. A method
// that lacks a metric is left out.
namespace tempera::study {

// {"mean", "sd", "ci95", "seeds": values}
nlohmann::ordered_json summary(const std::vector<double>& values);

// {key: summary} of a metric {key: number} that every seed's result has.
nlohmann::ordered_json summarise(const std::vector<nlohmann::ordered_json>& seeds,
                                 const std::string& metric);

// The sizes of the first method that has the metric.
std::vector<std::string> sizes_of(const nlohmann::ordered_json& methods, const std::string& metric);

// One line a method: the mean against the size, with its 95 % interval. `chart` has the titles.
plot::LineChart metric_chart(const nlohmann::ordered_json& methods, const std::string& metric,
                             plot::LineChart chart);

// mean ± standard deviation, a row a method, a column a size.
plot::Table metric_table(const nlohmann::ordered_json& methods, const std::string& metric,
                         const std::string& caption, int decimals);
// The same for a terminal.
std::string metric_text(const nlohmann::ordered_json& methods, const std::string& metric,
                        int decimals);

// ", mean ± sd of 3 seeds": what the figures of a table are.
std::string over_seeds(int64_t seeds);

// The last part of a report: version, command and settings.
void say_how_made(plot::HtmlReport& report, const nlohmann::ordered_json& document,
                  const std::string& command);

// Lines of cells as a table for a terminal: the first column to the left, the others to the right.
std::string aligned(const std::vector<std::vector<std::string>>& lines);
std::string fixed(double value, int decimals);

}  // namespace tempera::study
