#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tempera/nn/model.h"
#include "tempera/text/tokenizer.h"

namespace tempera::cli {

// What a verb gets for its argument MODEL.
struct OpenModel {
  std::shared_ptr<nn::Model> model;                  // in eval mode
  std::shared_ptr<const text::Tokenizer> tokenizer;  // none: the model was trained on a task
  std::filesystem::path path;                        // of the weights
};

// The one way for verbs to open a model.
OpenModel open_model(const std::string& path);

// The tokenizer; throws where the model has none.
const text::Tokenizer& tokenizer_of(const OpenModel& opened);

}  // namespace tempera::cli
