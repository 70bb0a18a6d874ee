#include "tempera/extension/describe.h"

#include <array>

#include "tempera/base/error.h"
#include "tempera/config/settings.h"
#include "tempera/families/family.h"
#include "tempera/models/weights.h"
#include "tempera/temperature/registry.h"

namespace tempera::extension {
namespace {

using nlohmann::json;

constexpr std::array kKinds = {std::pair(AttentionKind::kCausal, "causal"),
                               std::pair(AttentionKind::kEncoder, "encoder"),
                               std::pair(AttentionKind::kCross, "cross")};

// Each number of a shape, by its name.
template <class Shape, class Visit>
void visit_shape(Shape& shape, Visit&& visit) {
  visit("layers", shape.layers);
  visit("layer", shape.layer);
  visit("width", shape.d_model);
  visit("heads", shape.q_heads);
  visit("kv_heads", shape.kv_heads);
  visit("qk_size", shape.qk_size);
  visit("v_size", shape.v_size);
  visit("vocabulary", shape.vocabulary);
  visit("trained_length", shape.trained_length);
}

struct TemperatureGroup {
  nn::TemperatureConfig temperature = {};
  Origin origin = Origin::kScratch;

  void declare(config::Options& options) { temperature.declare(options, origin); }
};

json option_json(const config::Declaration& option) {
  json result{
      {"name", option.name}, {"default", config::json_value(option.value)}, {"help", option.help}};
  if (!option.domain.choices.empty()) result["choices"] = option.domain.choices;
  if (option.domain.range)
    result["range"] = json::array({option.domain.range->low, option.domain.range->high});
  return result;
}

// "model.layers.0.self_attn.q_proj.weight" as the module's name and that of the part in it.
std::pair<std::string, std::string> module_and_part(std::string name) {
  name.resize(name.rfind('.'));
  const size_t dot = name.rfind('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

const families::Rule& rule_of(const std::vector<families::Rule>& rules, std::string_view ours) {
  for (const auto& rule : rules)
    if (rule.ours == ours) return rule;
  throw Error(concat("the family has no tensor '", ours, "'"));
}

// What the attentions of a kind are called in our terms, with {} for the layer.
std::string attentions_of(const nn::ModelConfig& config, AttentionKind kind) {
  if (config.kind != nn::ModelKind::kEncoderDecoder) return "layers.{}.attention.";
  if (kind == AttentionKind::kEncoder) return "encoder.layers.{}.attention.";
  return kind == AttentionKind::kCross ? "decoder.layers.{}.cross_attention."
                                       : "decoder.layers.{}.attention.";
}

json attention_json(const nn::ModelConfig& config, const std::vector<families::Rule>& rules,
                    int64_t layer, AttentionKind kind) {
  const auto ours = attentions_of(config, kind);
  std::vector<families::Part> parts;
  using Matrices = std::vector<const char*>;
  for (const char* matrix :
       kind == AttentionKind::kCross ? Matrices{"q.weight", "kv.weight"} : Matrices{"qkv.weight"}) {
    const auto& found = rule_of(rules, ours + matrix).parts;
    parts.insert(parts.end(), found.begin(), found.end());
  }
  json projections = json::array();
  std::string module;
  for (const auto& part : parts) {
    const auto [owner, name] = module_and_part(families::at_layer(part.name, layer));
    module = owner;
    projections.push_back(name);
  }
  json norms = nullptr;
  if (config.qk_norm >= nn::QkNorm::kGain) {
    norms = json::array();
    for (const char* gain : {"q_norm", "k_norm"}) {
      const auto& part = rule_of(rules, ours + gain).parts[0].name;
      norms.push_back(module_and_part(families::at_layer(part, layer)).second);
    }
  }
  const auto window = config.attention_window(layer);
  return {
      {"module", module},
      {"projections", projections},
      {"by_head", parts[0].layout == families::Layout::kByHead},
      {"norms", norms},
      {"window", window ? json(*window) : json()},
      {"shape", shape_json(config.layer_shape(layer, kind))},
      {"has_temperature", nn::parse_layers(config.temperature.layers,
                                           config.layer_count(kind))[static_cast<size_t>(layer)]}};
}

std::vector<AttentionKind> kinds_of(nn::ModelKind kind) {
  if (kind == nn::ModelKind::kEncoder) return {AttentionKind::kEncoder};
  if (kind == nn::ModelKind::kDecoder) return {AttentionKind::kCausal};
  return {AttentionKind::kEncoder, AttentionKind::kCausal, AttentionKind::kCross};
}

}  // namespace

json shape_json(const LayerShape& shape) {
  json result;
  visit_shape(shape, [&](const char* name, int64_t value) { result[name] = value; });
  for (const auto& [kind, name] : kKinds)
    if (kind == shape.kind) result["kind"] = name;
  return result;
}

LayerShape shape_of(const json& json) {
  LayerShape shape;
  visit_shape(shape, [&](const char* name, int64_t& value) { value = json.at(name); });
  for (const auto& [kind, name] : kKinds)
    if (json.at("kind") == name) shape.kind = kind;
  return shape;
}

nn::TemperatureConfig temperature_of(const json& json, Origin origin) {
  config::Sources sources;
  sources.add_json({{"temperature", json}}, "the temperature");
  TemperatureGroup group{.origin = origin};
  config::Options options(sources);
  group.declare(options);
  options.check_known(sources);
  return group.temperature;
}

json temperature_json(const nn::TemperatureConfig& temperature) {
  return config::to_json(config::describe(TemperatureGroup{temperature}))["temperature"];
}

json registry_json() {
  json list = json::array();
  for (const auto& entry : method_registry()) {
    json options = json::array();
    for (const auto& option : entry.options) options.push_back(option_json(option));
    list.push_back({{"name", entry.name},
                    {"formula", entry.formula},
                    {"help", entry.help},
                    {"folds", entry.folds},
                    {"options", options}});
  }
  return list;
}

json attentions_json(const json& config_json, const nn::TemperatureConfig& given) {
  const auto& family =
      families::find_family(config_json.value("model_type", ""), "the model's config");
  auto config = families::read_config(family, config_json, "the model's config");
  config.temperature = given;
  const auto rules = family.rules(config);
  json list = json::array();
  for (const auto kind : kinds_of(config.kind))
    for (int64_t layer = 0; layer < config.layer_count(kind); ++layer)
      list.push_back(attention_json(config, rules, layer, kind));
  return {{"family", family.name},
          {"prefix", family.prefix},
          {"attentions", list},
          {"scale", config.attention_scale},
          {"cap", config.attention_cap}};
}

}  // namespace tempera::extension
