#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tempera/eval/request.h"
#include "tempera/nn/model.h"

namespace tempera::eval {

struct LikelihoodOptions {
  // Tokens that the model reads at once: of longer texts the end. 0: all of them, also past the
  // length that the model was trained at.
  int64_t max_length = 0;
  std::function<void(int64_t requests)> report = {};  // how many are done; may throw
};

// In the order of the requests, on the device that the model is on. The model is left in eval mode.
std::vector<Likelihood> score_requests(nn::Model& model, std::span<const Request> requests,
                                       const LikelihoodOptions& options = {});

}  // namespace tempera::eval
