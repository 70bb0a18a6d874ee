#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/nn/config.h"
#include "tempera/study/methods.h"
#include "tempera/train/data_source.h"
#include "tempera/train/options.h"

namespace tempera::study {

// Several methods on the same data, seeds and budget. Without arguments: the built-in phone-book
// task.
struct CompareSettings {
  CompareSettings();

  std::vector<std::string> methods = {"softmax", "focal", "focal-learned", "ssa"};
  int64_t seeds = 3;
  std::string out = "runs/compare";
  int64_t threads = 0;
  bool json = false;
  train::DataOptions data;
  train::TrainOptions training;
  nn::ModelConfig model;

  void declare(config::Options& options);
};

// Trains every method with every seed, seeds in parallel over the threads, and evaluates it on
// every held-out set. What a run folder already has is not done again. Returns the results;
// `results.json` and `report.html` in the folder hold the same.
nlohmann::ordered_json compare(const CompareSettings& settings);

// The results as a table for a terminal.
std::string results_text(const nlohmann::ordered_json& results);
// A page with tables and charts.
void write_report(const nlohmann::ordered_json& results, const std::filesystem::path& path);

}  // namespace tempera::study
