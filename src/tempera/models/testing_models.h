#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tempera/base/files.h"
#include "tempera/models/load.h"
#include "tempera/models/tensor_file.h"
#include "tempera/nn/testing_model.h"
#include "tempera/text/tokenizer.h"

// Small models in folders for tests.
namespace tempera::models {

// What rounding makes of the logits of a folded model.
inline constexpr double kLogitTolerance = 1e-4;

// Of bytes, with room for their tokenizer.
inline nn::ModelConfig byte_config() {
  nn::ModelConfig config = nn::tiny_config();
  config.vocabulary = text::ByteTokenizer::kVocabulary;
  return config;
}

// In our own format, as a training run writes it.
inline std::filesystem::path write_model(const std::filesystem::path& folder,
                                         const nn::Model& model,
                                         const std::string& tokenizer = "bytes") {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", model_config_json(model.config(), tokenizer));
  write_tensors(folder / "model.safetensors", model.state());
  return folder;
}

inline double logit_difference(nn::Model& a, nn::Model& b) {
  const auto batch = nn::tiny_batch();
  return nn::largest_difference(nn::eval_logits(a, batch), nn::eval_logits(b, batch));
}

}  // namespace tempera::models
