#pragma once

#include <string>
#include <vector>

#include "tempera/families/family.h"
#include "tempera/models/source.h"
#include "tempera/nn/model.h"

namespace tempera::models {

// Copies a file's tensors into the model by a family's rules; temperatures keep their start.
// prefix: what may be missing in front of all names. Throws, naming them, where tensors are
// missing, have another shape, or are left over.
void load_weights(nn::Model& model, const std::vector<families::Rule>& rules,
                  const TensorSource& source, std::string_view prefix);

// The reverse: the model's weights under the file's names; temperatures are left out.
nn::StateMap file_tensors(const nn::ModelConfig& config, const nn::StateMap& state,
                          const std::vector<families::Rule>& rules);

}  // namespace tempera::models
