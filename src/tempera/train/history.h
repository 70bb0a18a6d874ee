#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/train/log.h"
#include "tempera/train/run_folder.h"

namespace tempera::train {

// A number of the log by step. What is no number is left out: a loss that was not finite is null.
struct LoggedCurve {
  std::vector<double> steps = {}, values = {};

  void add(double step, const Json& value);
  bool empty() const { return steps.empty(); }
};

// The means of neighbours, so many that at most `most` points are left.
LoggedCurve thinned(const LoggedCurve& curve, size_t most);

// What the folder of a training tells: its settings and its log.
struct RunHistory {
  RunMark mark;
  LoggedCurve loss, learning_rate, gradient_norm, speed, validation;
  // Medians over the heads, by layer, of the watched steps.
  std::vector<std::pair<std::string, LoggedCurve>> temperature = {}, entropy = {};
  double step = 0, tokens = 0, seconds = 0;  // of the last logged step
  std::optional<double> progress = {};       // share of the budget that is spent; unset: not known
  bool last_validation_was_finite = true;
};

// Throws Error where the folder is not that of a run which logs its steps.
RunHistory read_history(const std::filesystem::path& folder);

}  // namespace tempera::train
