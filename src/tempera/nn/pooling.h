#pragma once

#include <torch/types.h>

#include "tempera/nn/model.h"

namespace tempera::nn {

enum class Pooling { kMean, kFirst };

// One row a sequence, (B, width) float32, of hidden states (B, T, width) of the batch: the mean of
// its rows, or the first; padding does not count.
torch::Tensor pool(const torch::Tensor& hidden, const Batch& batch, Pooling pooling);

}  // namespace tempera::nn
