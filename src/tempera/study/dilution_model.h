#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/models/device.h"
#include "tempera/study/study.h"

namespace tempera::study {

struct ModelDilutionSettings {
  std::vector<std::string> text;
  std::optional<std::string> against;
  int64_t window = 0;
  int64_t windows = 2;
  std::string out = "runs/dilution-model";
  models::ComputeOptions compute;
  bool json = false;

  void declare(config::Options& options);
};

// The entropy of the attention rows of a model that reads text, by the number of tokens that a row
// sees, layer by layer; and that of another model on the same windows.
plot::HtmlReport report_of_model_dilution(const std::filesystem::path& file);
StudyReport model_dilution(const std::string& model, const ModelDilutionSettings& settings);

}  // namespace tempera::study
