#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/nn/model.h"

// What changes of a model that exists, while all else stays as it is.
namespace tempera::adapt {

// What `--learn` names.
struct Learn {
  std::string methods = {};  // temperatures, "head,value"; empty: none
  bool norm = false;         // the gains of the norms
};

// "head,value,norm". Throws UsageError for unknown and repeated names.
Learn parse_learn(std::string_view text);

// Turns gradients off for all parameters that are not wanted, and gives those that are, each with
// the share of the learning rate that suits it.
std::vector<nn::NamedParameter> freeze_others(
    nn::Model& model, const std::function<bool(const nn::NamedParameter&)>& wanted);

bool is_norm_gain(const nn::NamedParameter& parameter);

// The temperature that a model is given: one a layer in place of one a head where the heads share
// the gain of their QK-norm, since only that folds. `say` gets a line where it is so.
nn::TemperatureConfig suited_temperature(const std::string& methods, const nn::ModelConfig& model,
                                         const std::function<void(const std::string&)>& say);

// A longer context: the rotary base grows by (context / trained)^2, unless one is given. Throws
// UsageError where the model's positions cannot be stretched so.
void extend_context(nn::Model& model, int64_t context, double rope_base);

// Weights that do not change are kept in the type of the computation; those that do keep all their
// digits.
void convert_frozen(nn::Model& model, torch::ScalarType type);

}  // namespace tempera::adapt
