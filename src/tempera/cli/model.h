#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tempera/models/device.h"
#include "tempera/models/load.h"
#include "tempera/text/tokenizer.h"

namespace tempera::cli {

// What a verb gets for its argument MODEL.
struct OpenModel {
  std::shared_ptr<nn::Model> model;                  // in eval mode
  std::shared_ptr<const text::Tokenizer> tokenizer;  // none: the model was trained on a task
  std::vector<int64_t> end_tokens;                   // that end an answer
  std::filesystem::path path;                        // of the weights
};

// The one way for verbs to open a model.
OpenModel open_model(const models::LoadedModel& loaded,
                     config::Device device = config::Device::kCpu);
// Also uses the threads that they say, from now on.
models::LoadOptions load_options(const models::ComputeOptions& compute);
// The same, with the temperature that the user gives the model; softmax: as it is.
models::LoadOptions load_options(const nn::TemperatureConfig& temperature);

// The tokenizer; throws where the model has none.
const text::Tokenizer& tokenizer_of(const OpenModel& opened);

}  // namespace tempera::cli
