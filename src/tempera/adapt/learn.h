#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/nn/model.h"

// What changes of a model that exists, while all else stays as it is.
namespace tempera::adapt {

// What `--learn` names.
struct Learn {
  std::optional<nn::TemperatureConfig> temperature = {};
  bool norm = false;  // the gains of the norms
  bool rope = false;  // the rotary frequencies
  bool lora = false;  // low-rank adapters beside all matrices
};

// The words for what is no temperature.
inline constexpr const char* kNorm = "norm";
inline constexpr const char* kRope = "rope";
inline constexpr const char* kLora = "lora";

// Adapters as people use them, with a learning rate of their own: this share of the norms'.
inline constexpr int64_t kLoraRank = 8;
inline constexpr double kLoraRate = 0.1;

// A list of methods, as parse_method_text() takes them, norm, rope and lora: "head,value,norm",
// "ssa:k=true,norm". Throws UsageError for unknown and repeated names, and for a temperature that
// has nothing to learn.
Learn parse_learn(std::string_view text);

// Whether it is what was asked for.
bool is_learned(const Learn& learn, const nn::NamedParameter& parameter);

// Turns gradients off for all parameters that are not wanted, and gives those that are, each with
// the share of the learning rate that suits it: a temperature's parameter as its method declares.
std::vector<nn::NamedParameter> freeze_others(
    nn::Model& model, const std::function<bool(const nn::NamedParameter&)>& wanted);

bool is_norm_gain(const nn::NamedParameter& parameter);

// The temperature that a model is given: one a layer in place of one a head where the heads share
// the gain of their QK-norm, since only that folds, unless the options say which. `say` gets a line
// where it is so.
nn::TemperatureConfig suited_temperature(nn::TemperatureConfig temperature,
                                         const nn::ModelConfig& model,
                                         const std::function<void(const std::string&)>& say);

}  // namespace tempera::adapt
