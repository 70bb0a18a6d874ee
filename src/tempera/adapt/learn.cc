#include "tempera/adapt/learn.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::adapt {
namespace {

constexpr std::string_view kNorm = "norm";

// Full for numbers that act on a whole head; less for those that many terms add up of.
double rate_of(const nn::NamedParameter& parameter) {
  if (parameter.kind != nn::ParameterKind::kTemperature) return 1;
  constexpr double kVector = 0.1;     // a dot product over a head's columns
  constexpr double kSlope = 1.0 / 8;  // multiplied by log n, which is about 8 at thousands of keys
  if (parameter.name.ends_with("_slope")) return kSlope;
  return parameter.tensor.dim() > 1 ? kVector : 1;
}

}  // namespace

Learn parse_learn(std::string_view text) {
  Learn learn;
  std::vector<std::string> known{std::string(kNorm)};
  for (const auto& entry : method_registry()) known.push_back(entry.name);
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (word == kNorm) {
      if (learn.norm) throw UsageError("--learn: 'norm' given twice");
      learn.norm = true;
    } else {
      if (std::ranges::find(known, word) == known.end())
        throw UsageError(concat("--learn: '", word, "' given; known are ", listed(known),
                                did_you_mean(word, known)));
      learn.methods += concat(learn.methods.empty() ? "" : ",", word);
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  if (!learn.methods.empty()) split_methods(learn.methods);
  return learn;
}

bool is_norm_gain(const nn::NamedParameter& parameter) {
  return parameter.name.ends_with("norm.weight");
}

std::vector<nn::NamedParameter> freeze_others(
    nn::Model& model, const std::function<bool(const nn::NamedParameter&)>& wanted) {
  std::vector<nn::NamedParameter> learned;
  for (auto& parameter : model.parameter_list()) {
    const bool take = wanted(parameter);
    parameter.tensor.requires_grad_(take);
    if (!take) continue;
    parameter.rate = rate_of(parameter);
    learned.push_back(parameter);
  }
  return learned;
}

nn::TemperatureConfig suited_temperature(const std::string& methods, const nn::ModelConfig& model,
                                         const std::function<void(const std::string&)>& say) {
  nn::TemperatureConfig temperature;
  if (methods.empty()) return temperature;
  temperature.method = methods;
  const auto names = split_methods(methods);
  if (model.qk_norm != nn::QkNorm::kGain || std::ranges::find(names, "head") == names.end())
    return temperature;
  // The option has the method's name before it where another part has one of the same name.
  for (const auto& declared : method_declarations(methods, Origin::kLoaded))
    if (declared.name == "by" || declared.name == "head.by")
      temperature.options[declared.name] = std::string("layer");
  say("the heads of a layer share the gain of their QK-norm: one temperature a layer is learned, "
      "which that gain can take up");
  return temperature;
}

void extend_context(nn::Model& model, int64_t context, double rope_base) {
  const auto& config = model.config();
  if (context < config.context)
    throw UsageError(concat("--context: ", context, " given, the model was trained at ",
                            config.context, "; to calibrate at a shorter length, give --length"));
  if (config.position != nn::PositionKind::kRope)
    throw UsageError("--context: the model has no rotary positions, so they cannot be stretched");
  if (config.rope.scaling != nn::RopeScaling::kNone)
    throw UsageError(
        "--context: the model stretches its rotary positions already (rope scaling in its "
        "config); two ways at once are not defined");
  const double factor = static_cast<double>(context) / static_cast<double>(config.context);
  model.set_context(context, rope_base > 0 ? rope_base : config.rope.base * factor * factor);
}

void convert_frozen(nn::Model& model, torch::ScalarType type) {
  for (const auto& parameter : model.parameter_list())
    if (!parameter.tensor.requires_grad()) parameter.tensor.set_data(parameter.tensor.to(type));
  model.set_compute_type(type);
}

}  // namespace tempera::adapt
