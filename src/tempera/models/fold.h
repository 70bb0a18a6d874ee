#pragma once

#include <optional>

#include "tempera/nn/model.h"

namespace tempera::models {

struct FoldedModel {
  nn::ModelConfig config;  // without a temperature
  nn::StateMap state;      // without its parameters
};

// Whether any layer has another attention than plain softmax.
bool needs_fold(nn::Model& model);

// The weights with their low-rank adapters added to them, and without temperatures.
nn::StateMap merged_weights(const nn::Model& model);

// The model's weights with its temperatures multiplied into W_q, W_k and W_v, or into the gains of
// its QK-norm. Throws Error, with the reason, where a temperature is not one number a head, or the
// heads share what it would go into.
FoldedModel fold(nn::Model& model);

// What the rotary positions multiply the logits by goes into the rows of q that rotate, where the
// scaling is one of single frequencies: GGUF has no word for it there. Throws where no weights can
// take it up.
void fold_rotary_amplitude(FoldedModel& model);

// The one factor that all logits of all layers and heads have, where there is one and the values
// have none: what a model can say by the scale of its logits alone.
std::optional<double> common_logit_factor(nn::Model& model);

}  // namespace tempera::models
