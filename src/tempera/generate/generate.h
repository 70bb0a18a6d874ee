#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tempera/generate/sampler.h"
#include "tempera/nn/model.h"

namespace tempera::generate {

struct GenerateOptions {
  int64_t max_tokens = 256;
  std::vector<int64_t> stop_tokens = {};  // an answer ends before one of these
  // Tokens that the model sees at once, for the length it was trained at is as far as most models
  // can write: a full window is begun anew with its newer half. Unset: the model's context; 0: no
  // bound but the model's longest sequence.
  std::optional<int64_t> window = {};
  SamplerOptions sampler = {};
};

struct Token {
  int64_t id = 0;
  // What the model itself gave it: without the sampler's temperature, cuts and penalty.
  double log_probability = 0;
};

struct Answer {
  std::vector<Token> tokens;
  bool stopped = false;  // by a stop token or the callback; otherwise there was no more room

  std::vector<int64_t> ids() const;
};

// Called with each new token of each prompt; false ends that answer behind it.
using TokenCallback = std::function<bool(size_t prompt, const Token& token)>;

// The new tokens that follow each prompt. The model must be in eval mode. Prompts of different
// lengths are padded in front.
std::vector<Answer> generate(nn::Model& model, const std::vector<std::vector<int64_t>>& prompts,
                             const GenerateOptions& options, const TokenCallback& on_token = {});

}  // namespace tempera::generate
