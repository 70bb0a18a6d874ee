#pragma once

#include "tempera/nn/config.h"
#include "tempera/train/forecast.h"

namespace tempera::cli {

// What every sharding of such a training needs on those machines, and which one to take.
void print_forecast(const nn::ModelConfig& model, const train::TrainOptions& options,
                    const train::Cluster& cluster, bool json);

}  // namespace tempera::cli
