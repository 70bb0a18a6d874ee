#include "tempera/eval/grid.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;

int64_t cases_of(const Grid& grid, size_t length) {
  int64_t cases = 0;
  for (const auto& cell : grid.cells)
    if (cell.length == grid.lengths[length]) cases += cell.cases;
  return cases;
}

std::string percent(double share) {
  std::ostringstream text;
  text << 100 * share << "%";
  return text.str();
}

plot::HeatMap heat_map(const Grid& grid, const std::string& title) {
  plot::HeatMap map{.title = title,
                    .x_label = "tokens of text",
                    .y_label = "depth of the answer",
                    .rows = grid.depths.size(),
                    .columns = grid.lengths.size(),
                    .min = 0,
                    .max = 100,
                    .scale_label = "% right",
                    .decimals = 0,
                    .show_values = true};
  for (const double depth : grid.depths) map.row_labels.push_back(percent(depth));
  for (const int64_t length : grid.lengths) map.column_labels.push_back(std::to_string(length));
  for (size_t d = 0; d < grid.depths.size(); ++d)
    for (size_t l = 0; l < grid.lengths.size(); ++l)
      map.values.push_back(100 * grid.cell(l, d).accuracy());
  return map;
}

plot::LineChart curve(const Grid& grid, const std::string& title) {
  plot::Series series{.name = "accuracy", .markers = true};
  for (size_t l = 0; l < grid.lengths.size(); ++l) {
    const Estimate accuracy = grid.at_length(l);
    series.x.push_back(static_cast<double>(grid.lengths[l]));
    series.y.push_back(100 * accuracy.value);
    series.low.push_back(100 * accuracy.low);
    series.high.push_back(100 * accuracy.high);
  }
  return {.title = title,
          .x = {.label = "tokens of text", .log = true},
          .y = {.label = "% right", .min = 0, .max = 100},
          .series = {series}};
}

}  // namespace

Grid Grid::empty(std::string task, std::vector<int64_t> lengths, std::vector<double> depths) {
  Grid grid{.task = std::move(task),
            .lengths = std::move(lengths),
            .depths = std::move(depths),
            .cells = {}};
  TEMPERA_CHECK(!grid.lengths.empty(), "no length of the text given");
  for (const int64_t length : grid.lengths) {
    if (grid.depths.empty()) grid.cells.push_back({.length = length});
    for (const double depth : grid.depths) grid.cells.push_back({.length = length, .depth = depth});
  }
  return grid;
}

const GridCell& Grid::cell(size_t length, size_t depth) const {
  return cells.at(length * std::max<size_t>(depths.size(), 1) + depth);
}

GridCell& Grid::cell(size_t length, size_t depth) {
  return cells.at(length * std::max<size_t>(depths.size(), 1) + depth);
}

Estimate Grid::estimate(size_t first, size_t count) const {
  int64_t hits = 0, cases = 0, texts = 0;
  for (size_t i = first; i < first + count; ++i) {
    hits += cells[i].hits;
    cases += cells[i].cases;
    texts += cells[i].texts;
  }
  TEMPERA_CHECK(cases > 0 && texts > 0, "no case of '", task, "' was asked");
  if (examples > 0) texts = std::min(texts, examples);
  return binomial(static_cast<double>(hits) / static_cast<double>(cases), texts);
}

Estimate Grid::at_length(size_t length) const {
  const size_t count = std::max<size_t>(depths.size(), 1);
  return estimate(length * count, count);
}

Estimate Grid::overall() const { return estimate(0, cells.size()); }

Json to_json(const Grid& grid) {
  const auto estimated = [](const Estimate& accuracy) {
    return Json{{"accuracy", accuracy.value},
                {"stderr", accuracy.standard_error},
                {"low", accuracy.low},
                {"high", accuracy.high}};
  };
  Json lengths = Json::array(), cells = Json::array();
  for (size_t l = 0; l < grid.lengths.size(); ++l) {
    Json row{{"length", grid.lengths[l]}, {"cases", cases_of(grid, l)}};
    row.update(estimated(grid.at_length(l)));
    lengths.push_back(std::move(row));
  }
  for (const auto& cell : grid.cells) {
    Json entry{
        {"length", cell.length}, {"hits", cell.hits}, {"cases", cell.cases}, {"texts", cell.texts}};
    if (!grid.depths.empty()) entry["depth"] = cell.depth;
    cells.push_back(std::move(entry));
  }
  Json document{{"task", grid.task}};
  document.update(estimated(grid.overall()));
  document["lengths"] = std::move(lengths);
  document["cells"] = std::move(cells);
  return document;
}

Grid grid_of(const Json& json) {
  Grid grid{.task = json.at("task"), .lengths = {}, .depths = {}, .cells = {}};
  for (const Json& row : json.at("lengths")) grid.lengths.push_back(row.at("length"));
  for (const Json& cell : json.at("cells")) {
    grid.cells.push_back({.length = cell.at("length"),
                          .depth = cell.value("depth", 0.0),
                          .hits = cell.at("hits"),
                          .cases = cell.at("cases"),
                          .texts = cell.at("texts")});
    const double depth = grid.cells.back().depth;
    if (cell.contains("depth") && std::ranges::find(grid.depths, depth) == grid.depths.end())
      grid.depths.push_back(depth);
  }
  return grid;
}

std::string to_text(const Grid& grid) {
  std::ostringstream text;
  text << grid.task << ", % right\n" << std::right << std::setw(10) << "tokens";
  for (const double depth : grid.depths) text << std::setw(9) << percent(depth);
  text << std::setw(9) << "all" << std::setw(16) << "95 % interval" << std::setw(8) << "cases"
       << "\n"
       << std::fixed << std::setprecision(1);
  const auto summary = [&](const Estimate& accuracy, int64_t cases) {
    std::ostringstream interval;
    interval << std::fixed << std::setprecision(1) << 100 * accuracy.low << " - "
             << 100 * accuracy.high;
    text << std::setw(9) << 100 * accuracy.value << std::setw(16) << interval.str() << std::setw(8)
         << cases << "\n";
  };
  int64_t all = 0;
  for (size_t l = 0; l < grid.lengths.size(); ++l) {
    text << std::setw(10) << grid.lengths[l];
    for (size_t d = 0; d < grid.depths.size(); ++d)
      text << std::setw(9) << 100 * grid.cell(l, d).accuracy();
    summary(grid.at_length(l), cases_of(grid, l));
    all += cases_of(grid, l);
  }
  text << std::setw(10) << "all" << std::string(9 * grid.depths.size(), ' ');
  summary(grid.overall(), all);
  return text.str();
}

plot::Chart to_chart(const Grid& grid, const std::string& title) {
  if (grid.depths.empty()) return curve(grid, title);
  return heat_map(grid, title);
}

plot::Figure to_figure(const Grid& grid) {
  plot::Figure figure{.title = grid.task};
  figure.panels.push_back(to_chart(grid, "Right answers by length"));
  return figure;
}

}  // namespace tempera::eval
