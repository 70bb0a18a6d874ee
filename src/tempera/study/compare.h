#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/nn/config.h"
#include "tempera/study/methods.h"
#include "tempera/study/sizing.h"
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
  bool fresh = false;
  int64_t threads = 0;
  bool json = false;
  double seconds = 0;  // that a comparison on text may take, all in all; 0: 600
  int64_t eval_tokens = 65'536;
  train::DataOptions data;
  train::TrainOptions training;
  nn::ModelConfig model;
  GivenSize given;  // what the sources of declare() say about the size; on text the rest is fitted

  void declare(config::Options& options);

 private:
  void note_given(const config::Options& options);
};

// On text, fits the size of what is not given to the machine and the time, and says so on standard
// error. Then trains every method with every seed, seeds in parallel over the threads, and
// evaluates it on every held-out set. What a run folder already has is not done again. Returns the
// results; `results.json` and `report.html` in the folder hold the same. verb: whose folder it is,
// as a person types it.
nlohmann::ordered_json compare(const CompareSettings& settings, const std::string& verb);

// The results as a table for a terminal.
std::string results_text(const nlohmann::ordered_json& results);
// A page with tables and charts.
void write_report(const nlohmann::ordered_json& results, const std::filesystem::path& path);

}  // namespace tempera::study
