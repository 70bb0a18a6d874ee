#include "tempera/eval/long_score.h"

#include <algorithm>
#include <span>

#include "tempera/base/error.h"
#include "tempera/eval/likelihood.h"

namespace tempera::eval {
namespace {

void count_hits(const LongCase& asked, std::span<const Likelihood> scores, GridCell& cell) {
  ++cell.texts;
  const auto greedy = std::ranges::count_if(scores, &Likelihood::greedy);
  if (asked.rule == HitRule::kEach) {
    cell.cases += static_cast<int64_t>(scores.size());
    cell.hits += greedy;
    return;
  }
  ++cell.cases;
  const auto best = std::ranges::max_element(scores, {}, &Likelihood::log_probability);
  const bool hit = asked.rule == HitRule::kAny
                       ? greedy > 0
                       : static_cast<size_t>(best - scores.begin()) == asked.gold;
  if (hit) ++cell.hits;
}

}  // namespace

int64_t long_task_cases(const LongTask& task, const LongTaskOptions& options) {
  return options.cases *
         static_cast<int64_t>(options.lengths.size() * (task.depths ? options.depths.size() : 1));
}

Grid score_long_task(nn::Model& model, const text::Tokenizer& tokenizer, const LongTask& task,
                     const LongTaskOptions& options,
                     const std::function<void(int64_t cases)>& report) {
  check_long_options(task, options);
  const LongSource source = open_source(task, options, tokenizer);
  const auto depths = task.depths ? options.depths : std::vector<double>();
  Grid grid = Grid::empty(task.name, options.lengths, depths);
  grid.examples = static_cast<int64_t>(source.examples.size());
  const auto cases_of_cell = static_cast<size_t>(options.cases);
  int64_t done = 0;
  for (size_t c = 0; c < grid.cells.size(); ++c) {
    GridCell& cell = grid.cells[c];
    std::vector<LongCase> cases;
    std::vector<Request> requests;
    for (size_t i = 0; i < cases_of_cell; ++i) {
      cases.push_back(
          task.make(source, {.length = cell.length,
                             .depth = cell.depth,
                             .index = c * cases_of_cell + i,
                             .group = i,
                             .random = case_stream(task, options, {cell.length, cell.depth, i})}));
      requests.insert(requests.end(), cases.back().requests.begin(), cases.back().requests.end());
    }
    const auto scores = score_requests(model, requests);
    std::span<const Likelihood> left = scores;
    for (const auto& asked : cases) {
      count_hits(asked, left.first(asked.requests.size()), cell);
      left = left.subspan(asked.requests.size());
    }
    done += options.cases;
    if (report) report(done);
  }
  return grid;
}

}  // namespace tempera::eval
