#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tempera/generate/sampler.h"
#include "tempera/nn/model.h"

namespace tempera::generate {

struct GenerateOptions {
  int64_t max_tokens = 256;
  std::vector<int64_t> stop_tokens;  // an answer ends before one of these
  SamplerOptions sampler;
};

// Called with each new token; false ends the answer behind it.
using TokenCallback = std::function<bool(int64_t token)>;

// The new tokens that follow the prompt. The model must be in eval mode. An answer also ends where
// the model's longest sequence does.
std::vector<int64_t> generate(nn::Model& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options, const TokenCallback& on_token = {});

// The same for several prompts at once, which are padded in front to the longest.
std::vector<std::vector<int64_t>> generate_batch(nn::Model& model,
                                                 const std::vector<std::vector<int64_t>>& prompts,
                                                 const GenerateOptions& options);

}  // namespace tempera::generate
