#pragma once

#include <cstdint>
#include <memory>

#include "tempera/nn/model.h"

namespace tempera::models {

// The encoder with a head that scores `classes` classes of a whole text, and all that it knew
// before but its former head. One that has such a head already keeps it. Throws Error for other
// models.
std::shared_ptr<nn::Model> with_classifier(const nn::Model& model, int64_t classes, uint64_t seed);

}  // namespace tempera::models
