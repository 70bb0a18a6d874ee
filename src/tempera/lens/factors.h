#pragma once

#include <memory>
#include <vector>

#include "tempera/nn/model.h"

namespace tempera::lens {

// By attention and head: what multiplies the temperature.
using Factors = std::vector<std::vector<double>>;
inline constexpr double kLeastFactor = 0.01, kMostFactor = 100;

// A model with the same weights whose temperatures are multiplied: its own temperature times one a
// head. Throws where a layer that is to change has no temperature and others have one.
std::shared_ptr<nn::Model> with_factors(nn::Model& model, const Factors& factors);

}  // namespace tempera::lens
