#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/nn/config.h"
#include "tempera/train/options.h"

namespace tempera::study {

// A few steps of real training, to learn how fast this machine is.
struct Probe {
  std::vector<nn::ModelConfig> models;  // one a method
  train::TrainOptions training;
  std::shared_ptr<const data::Dataset> dataset;
  int64_t workers = 1;
  int64_t most_tokens = 0;  // of a step; 0: what suits the device
};

// Seconds a trained token takes, the mean over the models, each trained for a moment by every
// worker at the same time.
double seconds_per_token(const Probe& probe);

}  // namespace tempera::study
