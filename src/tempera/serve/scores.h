#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tempera/generate/sampler.h"
#include "tempera/serve/job.h"

namespace tempera::serve {

// Tokens with their log-probabilities: of each row of logits (rows, V) the one that ids names.
std::vector<ScoredToken> score(const torch::Tensor& logits, const std::vector<int64_t>& ids,
                               int64_t top);

// Draws the tokens of one job.
class Writer {
 public:
  explicit Writer(const JobRequest& request);

  // The next token, of logits (1, V) in float32 on the CPU.
  int64_t next(const torch::Tensor& logits);

 private:
  torch::Tensor adjusted(const torch::Tensor& logits) const;

  const JobRequest& request_;
  generate::Sampler sampler_;
  std::map<int64_t, int64_t> written_;  // how often
  std::map<int64_t, bool> seen_;        // in the prompt or the answer, for the repetition penalty
};

}  // namespace tempera::serve
