#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/eval/bootstrap.h"
#include "tempera/plot/chart.h"

namespace tempera::eval {

// How many answers were right at one length of the text and, where the task has one, one depth.
struct GridCell {
  int64_t length = 0;  // tokens
  double depth = 0;    // where in the text the answer stands: 0 its begin, 1 its end
  int64_t hits = 0;
  int64_t cases = 0;
  int64_t texts = 0;  // the cases are questions about these; each was drawn by itself

  double accuracy() const {
    return cases > 0 ? static_cast<double>(hits) / static_cast<double>(cases) : 0;
  }
};

// Right answers by length and depth.
struct Grid {
  std::string task;
  std::vector<int64_t> lengths;
  std::vector<double> depths;   // empty: the task has none, and each length has one cell
  std::vector<GridCell> cells;  // length by length
  int64_t examples = 0;         // that the texts were made from, each in turn; 0: no bound

  // Empty cells for every length and depth.
  static Grid empty(std::string task, std::vector<int64_t> lengths, std::vector<double> depths);
  GridCell& cell(size_t length, size_t depth = 0);
  const GridCell& cell(size_t length, size_t depth = 0) const;
  // Over all depths of a length, and over everything. The interval is that of as many independent
  // answers as there are texts (Wilson's of a binomial share): questions about one text, or texts
  // from the same example, count once.
  Estimate at_length(size_t length) const;
  Estimate overall() const;

 private:
  Estimate estimate(size_t first, size_t count) const;
};

nlohmann::ordered_json to_json(const Grid& grid);
// What to_json() wrote; the number of examples is not in it.
Grid grid_of(const nlohmann::ordered_json& json);
std::string to_text(const Grid& grid);
// A heat map, length by depth; without depths a curve with its interval.
plot::Chart to_chart(const Grid& grid, const std::string& title);
plot::Figure to_figure(const Grid& grid);

}  // namespace tempera::eval
