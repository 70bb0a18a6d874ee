#include "tempera/adapt/learn.h"

#include <algorithm>
#include <map>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/method_text.h"
#include "tempera/temperature/registry.h"

namespace tempera::adapt {
namespace {

// A layer with all that a method may ask for.
std::shared_ptr<Method> sample_of(const MethodText& text) {
  const LayerShape shape{.d_model = 8,
                         .q_heads = 2,
                         .kv_heads = 2,
                         .qk_size = 4,
                         .v_size = 4,
                         .vocabulary = 8,
                         .trained_length = 8};
  return make_method(method_specs(text.methods, text.options, Origin::kLoaded), shape);
}

std::string learnable_names() {
  std::string names;
  for (const auto& entry : method_registry())
    if (sample_of({.methods = entry.name})->parameter_count() > 0) names += entry.name + ", ";
  return names + concat(kNorm, ", ", kRope, ", ", kLora);
}

void check_known(std::string_view word) {
  const auto methods = word.substr(0, word.find(':'));
  std::vector<std::string> known{kNorm, kRope, kLora};
  for (const auto& entry : method_registry()) known.push_back(entry.name);
  for (size_t begin = 0; begin <= methods.size();) {
    const size_t end = std::min(methods.find('+', begin), methods.size());
    const auto name = methods.substr(begin, end - begin);
    if (std::ranges::find(known, name) == known.end())
      throw UsageError(concat("--learn: '", name, "' given; one or more of ", learnable_names(),
                              " expected", did_you_mean(name, known)));
    begin = end + 1;
  }
}

nn::TemperatureConfig learnable_temperature(const MethodText& text) {
  const auto sample = sample_of(text);
  if (sample->parameter_count() == 0)
    throw UsageError(concat("--learn: '", text.methods, "' has nothing to learn; one or more of ",
                            learnable_names(), " expected"));
  if (sample->reads_tokens())
    throw UsageError(concat("--learn: '", text.methods, "' with these options reads how often ",
                            "tokens occur in the text that the model was trained on, which is not "
                            "known here"));
  nn::TemperatureConfig temperature;
  temperature.method = text.methods;
  temperature.options = text.options;
  return temperature;
}

// Of every parameter of the model's temperatures.
std::map<const void*, double> temperature_rates(const nn::Model& model) {
  std::map<const void*, double> rates;
  for (const auto& module : model.modules(/*include_self=*/false))
    if (const auto* method = module->as<Method>())
      for (const auto& parameter : method->named_parameters(/*recurse=*/false))
        rates[parameter.value().unsafeGetTensorImpl()] = method->rates().at(parameter.key());
  return rates;
}

}  // namespace

Learn parse_learn(std::string_view text) {
  Learn learn;
  std::vector<MethodText> methods;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    bool* other = word == kNorm   ? &learn.norm
                  : word == kRope ? &learn.rope
                  : word == kLora ? &learn.lora
                                  : nullptr;
    if (other) {
      if (*other) throw UsageError(concat("--learn: '", word, "' given twice"));
      *other = true;
    } else {
      check_known(word);
      methods.push_back(parse_method_text(word, "--learn", Origin::kLoaded));
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  if (!methods.empty()) learn.temperature = learnable_temperature(product_of(methods));
  return learn;
}

bool is_learned(const Learn& learn, const nn::NamedParameter& parameter) {
  switch (parameter.kind) {
    case nn::ParameterKind::kTemperature:
      return learn.temperature.has_value();
    case nn::ParameterKind::kFrequency:
      return learn.rope;
    case nn::ParameterKind::kAdapter:
      return learn.lora;
    case nn::ParameterKind::kMatrix:
    case nn::ParameterKind::kEmbedding:
    case nn::ParameterKind::kVector:
      return learn.norm && is_norm_gain(parameter);
  }
  return false;
}

bool is_norm_gain(const nn::NamedParameter& parameter) {
  return parameter.name.ends_with("norm.weight");
}

std::vector<nn::NamedParameter> freeze_others(
    nn::Model& model, const std::function<bool(const nn::NamedParameter&)>& wanted) {
  const auto rates = temperature_rates(model);
  std::vector<nn::NamedParameter> learned;
  for (auto& parameter : model.parameter_list()) {
    const bool take = wanted(parameter);
    parameter.tensor.requires_grad_(take);
    if (!take) continue;
    const auto rate = rates.find(parameter.tensor.unsafeGetTensorImpl());
    if (rate != rates.end()) parameter.rate = rate->second;
    learned.push_back(parameter);
  }
  return learned;
}

nn::TemperatureConfig suited_temperature(nn::TemperatureConfig temperature,
                                         const nn::ModelConfig& model,
                                         const std::function<void(const std::string&)>& say) {
  const auto names = split_methods(temperature.method);
  if (model.qk_norm != nn::QkNorm::kGain || std::ranges::find(names, "head") == names.end())
    return temperature;
  // The option has the method's name before it where another part has one of the same name.
  for (const auto& declared : method_declarations(temperature.method, Origin::kLoaded)) {
    if (declared.name != "by" && declared.name != "head.by") continue;
    if (temperature.options.emplace(declared.name, std::string("layer")).second)
      say("the heads of a layer share the gain of their QK-norm: one temperature a layer is "
          "learned, which that gain can take up");
  }
  return temperature;
}

}  // namespace tempera::adapt
