#pragma once

#include <torch/types.h>

#include <cstdint>

#include "tempera/config/options.h"

namespace tempera::generate {

struct SamplerOptions {
  double temperature = 1;  // 0, or below 1e-6: the likeliest token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;  // above 1: lowers the scores of tokens that were there before
  int64_t seed = 0;

  bool operator==(const SamplerOptions&) const = default;
  void declare(config::Options& options);
};

// The probabilities (B, V) from which tokens are drawn, float32: logits over the temperature, then
// of each row only the top k, then the fewest that reach top-p, then those with at least min-p of
// the likeliest one's. The likeliest always stays. At temperature 0 it has all.
torch::Tensor sampling_probabilities(const torch::Tensor& logits, const SamplerOptions& options);

// Draws tokens; the i-th draw of a seed is the same whatever happened elsewhere.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // One token id (B) for every row of logits (B, V).
  torch::Tensor sample(const torch::Tensor& logits);

 private:
  SamplerOptions options_;
  torch::Generator generator_;
};

}  // namespace tempera::generate
