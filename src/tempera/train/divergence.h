#pragma once

#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/nn/model.h"

namespace tempera::train {

// A training whose loss or gradients are no longer finite, as opposed to one that failed.
class Diverged : public Error {
 public:
  using Error::Error;
};

// Runs a pass that gave a loss or gradients that are not finite again, and tells in words where the
// first number that is not finite came up: a parameter, the activations of a layer, or its
// gradients. Empty: nowhere.
std::string find_divergence(nn::Model& model, const std::vector<nn::Batch>& batches,
                            double label_smoothing);

}  // namespace tempera::train
