#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tempera/nn/model.h"

namespace tempera::train {

// What config.json of a checkpoint says: the model's shape and method, and its tokenizer's name
// (empty: none).
std::string model_config_json(const nn::ModelConfig& config, const std::string& tokenizer);

struct LoadedModel {
  std::shared_ptr<nn::Model> model;  // in eval mode, on the CPU
  std::string tokenizer;
  std::filesystem::path path;  // of the checkpoint
};

// The model of a checkpoint, or of the best checkpoint of a run's folder.
LoadedModel load_model(const std::filesystem::path& path);

}  // namespace tempera::train
