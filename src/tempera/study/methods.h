#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tempera/nn/config.h"
#include "tempera/study/folder.h"
#include "tempera/study/pool.h"

namespace tempera::study {

// A method as --methods names it (temperature/method_text.h).
struct NamedMethod {
  std::string label;
  nn::TemperatureConfig temperature;
};
NamedMethod parse_method(const std::string& text);
// Throws UsageError for none, for one that is given twice, and for what parse_method refuses.
std::vector<NamedMethod> parse_methods(const std::vector<std::string>& texts);

// How every study of methods is laid out: each method with each seed is a model of its own.
template <class Result>
struct MethodGrid {
  std::string title;  // of the progress
  std::vector<NamedMethod> methods;
  int64_t seeds = 0;
  int64_t threads = 0;
  std::function<Result(const NamedMethod& method, int64_t seed, const ReportStep& report)> make;
};

// What `make` gave, by method and seed, for the first rank; the ranks share the models. What the
// folder has is not made again.
template <class Result>
std::vector<std::vector<Result>> run_grid(const MethodGrid<Result>& grid,
                                          const std::filesystem::path& folder, dist::World& world) {
  std::vector<Piece> pieces;
  for (int64_t seed = 0; seed < grid.seeds; ++seed)
    for (const auto& method : grid.methods)
      pieces.push_back({.label = concat(method.label, " seed ", seed),
                        .file = job_file(folder, method.label, seed),
                        .make = [&grid, &method, seed](const auto& report) {
                          return as_json(grid.make(method, seed, report));
                        }});
  run_pieces(grid.title, pieces, grid.threads, world);
  if (!world.is_first()) return {};
  std::vector<std::vector<Result>> results(grid.methods.size());
  for (size_t i = 0; i < pieces.size(); ++i)
    results[i % grid.methods.size()].push_back(read_result<Result>(pieces[i].file));
  return results;
}

// What a run that was stopped has of it: the seeds that are done for every method.
template <class Result>
std::vector<std::vector<Result>> finished_seeds(const std::vector<NamedMethod>& methods,
                                                int64_t seeds,
                                                const std::filesystem::path& folder) {
  std::vector<std::vector<Result>> results(methods.size());
  for (int64_t seed = 0; seed < seeds; ++seed) {
    const auto file = [&](const NamedMethod& method) {
      return job_file(folder, method.label, seed);
    };
    const auto is_done = [&](const NamedMethod& method) {
      return std::filesystem::is_regular_file(file(method));
    };
    if (!std::ranges::all_of(methods, is_done)) continue;
    for (size_t i = 0; i < methods.size(); ++i)
      results[i].push_back(read_result<Result>(file(methods[i])));
  }
  return results;
}

}  // namespace tempera::study
