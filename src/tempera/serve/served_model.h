#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tempera/models/embed.h"
#include "tempera/serve/engine.h"
#include "tempera/text/chat.h"
#include "tempera/text/tokenizer.h"

namespace tempera::serve {

// A model under the name by which requests ask for it.
struct ServedModel {
  std::string name;
  std::shared_ptr<nn::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat;
  std::vector<int64_t> end_tokens;
  std::unique_ptr<Engine> engine;             // of a decoder
  std::optional<models::EmbedOptions> embed;  // of any other model
  int64_t threads = 0;                        // to embed with; 0: torch's own choice
  std::unique_ptr<Metrics> metrics = std::make_unique<Metrics>();

  // Most tokens of a text, with its answer; 0: no bound.
  int64_t context() const { return engine ? engine->context() : embed->length; }
  // Of the embedding, which may have more rows than the tokenizer has names.
  int64_t vocabulary() const { return model->config().vocabulary; }
};

}  // namespace tempera::serve
