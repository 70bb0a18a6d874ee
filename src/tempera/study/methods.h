#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
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
struct MethodGrid {
  std::string title;  // of the progress
  std::vector<NamedMethod> methods;
  int64_t seeds = 0;
  int64_t threads = 0;
  std::function<nlohmann::ordered_json(const NamedMethod& method, int64_t seed,
                                       const ReportStep& report)>
      make;
};

// What `make` gave, by method and seed. What the folder has is not made again.
std::vector<std::vector<nlohmann::ordered_json>> run_grid(const MethodGrid& grid,
                                                          const StudyFolder& folder);

}  // namespace tempera::study
