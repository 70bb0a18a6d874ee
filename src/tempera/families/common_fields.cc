#include "tempera/families/common_fields.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/families/family.h"
#include "tempera/families/rope_factors.h"

namespace tempera::families {
namespace {

using nn::ModelConfig;
using nn::RopeScaling;
using Json = nlohmann::json;

// The older keys as the newer object, so that there is one reader.
Json rope_parameters(Fields& f) {
  Json parameters = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = f.find(key);
    if (!value) continue;
    TEMPERA_CHECK(value->is_object(), f.where(), ": ", key, ": an object expected");
    parameters.update(*value);
  }
  if (const Json* old = parameters.contains("type") ? &parameters["type"] : nullptr) {
    if (!parameters.contains("rope_type")) parameters["rope_type"] = *old;
    parameters.erase("type");
  }
  const auto take = [&](const char* from, const char* to) {
    const Json* value = f.find(from);
    if (value && !parameters.contains(to)) parameters[to] = *value;
  };
  take("rope_theta", "rope_theta");
  take("rotary_emb_base", "rope_theta");
  take("partial_rotary_factor", "partial_rotary_factor");
  take("rotary_pct", "partial_rotary_factor");
  take("original_max_position_embeddings", "original_max_position_embeddings");
  return parameters;
}

const std::vector<std::pair<std::string, RopeScaling>>& scalings() {
  static const std::vector<std::pair<std::string, RopeScaling>> known = {
      {"default", RopeScaling::kNone},    {"linear", RopeScaling::kLinear},
      {"dynamic", RopeScaling::kDynamic}, {"yarn", RopeScaling::kYarn},
      {"llama3", RopeScaling::kLlama3},   {"longrope", RopeScaling::kFactors}};
  return known;
}

double yarn_scale(double factor, double strength) {
  return factor <= 1 ? 1 : 0.1 * strength * std::log(factor) + 1;
}

void yarn_fields(Fields& f, nn::RopeConfig& rope) {
  f.number("beta_fast", rope.beta_fast, 32);
  f.number("beta_slow", rope.beta_slow, 1);
  f.flag("truncate", rope.truncate, true);
  if (f.reading()) {
    double strength = 0, all = 0;
    f.number("mscale", strength, 0);
    f.number("mscale_all_dim", all, 0);
    f.number("attention_factor", rope.attention_factor, 0);
    if (rope.attention_factor == 0 && strength != 0 && all != 0)
      rope.attention_factor = yarn_scale(rope.factor, strength) / yarn_scale(rope.factor, all);
  } else if (rope.attention_factor > 0) {
    f.number("attention_factor", rope.attention_factor);
  }
}

void factor_list(Fields& f, const char* key, std::vector<double>& factors, int64_t count) {
  if (!f.reading()) return f.set(key, factors);
  const Json* value = f.find(key);
  TEMPERA_CHECK(
      value && value->is_array() && static_cast<int64_t>(value->size()) == count, f.where(), ": ",
      key, ": ",
      value && value->is_array() ? concat(value->size(), " numbers given") : "no list given", ", ",
      count, " expected: one for each rotary frequency of the model");
  factors.clear();
  for (const Json& factor : *value) {
    const double number = factor.is_number() ? factor.get<double>() : 0;
    TEMPERA_CHECK(number > 0 && number < kLargestRopeFactor, f.where(), ": ", key, ": ",
                  factor.dump(), " given, a number above 0 and below a million expected");
    factors.push_back(number);
  }
}

// Two lists: one of texts up to the old context, one of longer ones.
void longrope_fields(Fields& f, ModelConfig& c) {
  nn::RopeConfig& rope = c.rope;
  if (!f.reading() && rope.original_context == 0) rope.original_context = c.context;
  if (!f.reading() && rope.attention_factor == 0) rope.attention_factor = 1;
  f.integer("original_max_position_embeddings", rope.original_context, c.context);
  TEMPERA_CHECK(rope.original_context > 0, f.where(),
                ": original_max_position_embeddings: ", rope.original_context,
                " given, a length expected");
  double stretched = static_cast<double>(c.context) / static_cast<double>(rope.original_context);
  if (!f.reading()) stretched = std::max(1.0, stretched);  // readers insist on that
  f.number("factor", stretched, stretched);
  const double absent =
      stretched <= 1 ? 1
                     : std::sqrt(1 + std::log(stretched) /
                                         std::log(static_cast<double>(rope.original_context)));
  f.number("attention_factor", rope.attention_factor, absent);
  factor_list(f, "long_factor", rope.factors, c.rotary_size() / 2);
  auto& brief = rope.short_factors;
  if (!f.reading() && brief.empty()) brief = rope.factors;
  factor_list(f, "short_factor", brief, c.rotary_size() / 2);
  if (brief == rope.factors) brief.clear();
}

void require_above_zero(const Fields& f, const char* key, double value) {
  TEMPERA_CHECK(std::isfinite(value) && value > 0, f.where(), ": ", key, ": ", value,
                " given, a number above 0 expected");
}

void scaling_fields(Fields& f, ModelConfig& c) {
  nn::RopeConfig& rope = c.rope;
  f.choice("rope_type", rope.scaling, "default", scalings());
  if (rope.scaling == RopeScaling::kNone) {
    f.ignore({"factor"});
    return;
  }
  if (rope.scaling == RopeScaling::kFactors) return longrope_fields(f, c);
  const bool stretched = rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLlama3;
  // YaRN files may leave the factor to the two lengths.
  double factor = 0;
  if (f.reading() && rope.scaling == RopeScaling::kYarn) f.number("factor", factor, 0);
  if (stretched) f.integer("original_max_position_embeddings", rope.original_context, c.context);
  if (f.reading() && rope.scaling == RopeScaling::kYarn && factor == 0) {
    TEMPERA_CHECK(rope.original_context > 0, f.where(),
                  ": original_max_position_embeddings: ", rope.original_context,
                  " given, a length expected");
    rope.factor = static_cast<double>(c.context) / static_cast<double>(rope.original_context);
  } else {
    f.number("factor", rope.factor);
  }
  require_above_zero(f, "factor", rope.factor);
  if (rope.scaling == RopeScaling::kLlama3) {
    f.number("low_freq_factor", rope.low_factor);
    f.number("high_freq_factor", rope.high_factor);
  }
  if (rope.scaling == RopeScaling::kYarn) yarn_fields(f, rope);
}

}  // namespace

void rope_fields(Fields& f, ModelConfig& c, double fallback_base) {
  if (f.reading()) {
    auto inner = Fields::reader(rope_parameters(f), f.where());
    inner.number("rope_theta", c.rope.base, fallback_base);
    require_above_zero(inner, "rope_theta", c.rope.base);
    inner.number("partial_rotary_factor", c.rope.fraction, 1);
    scaling_fields(inner, c);
    inner.ignore({"original_max_position_embeddings"});
    inner.finish();
    return;
  }
  f.number("rope_theta", c.rope.base);
  if (c.rope.fraction != 1) f.number("partial_rotary_factor", c.rope.fraction);
  if (c.rope.scaling == RopeScaling::kNone) return;
  auto inner = Fields::writer();
  scaling_fields(inner, c);
  f.set("rope_scaling", inner.json());
}

std::string layer_list(const std::vector<bool>& chosen) {
  if (std::ranges::count(chosen, false) == 0) return "all";
  std::string text;
  for (size_t layer = 0; layer < chosen.size(); ++layer)
    if (chosen[layer]) text += (text.empty() ? "" : ",") + std::to_string(layer);
  return text;
}

void window_fields(Fields& f, ModelConfig& c, const std::vector<bool>& fallback) {
  if (!f.reading()) {
    if (c.window == 0) return f.set("sliding_window", nullptr);
    f.set("sliding_window", c.window);
    Json types = Json::array();
    bool told = true;
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      const bool slides = c.attention_window(layer).has_value();
      types.push_back(slides ? "sliding_attention" : "full_attention");
      told = told && slides == fallback[static_cast<size_t>(layer)];
    }
    // transformers takes a Mistral with a list for another family.
    if (!told) f.set("layer_types", std::move(types));
    return;
  }
  constexpr int64_t kAbsentWindow = 4096;
  int64_t window = 0;
  f.integer("sliding_window", window, f.stated("sliding_window") ? 0 : kAbsentWindow);
  std::vector<bool> chosen = fallback;
  if (const Json* types = f.find("layer_types")) {
    TEMPERA_CHECK(types->is_array() && types->size() == fallback.size(), f.where(),
                  ": layer_types: a list of ", fallback.size(), " words expected");
    for (size_t layer = 0; layer < chosen.size(); ++layer) {
      const Json& type = (*types)[layer];
      TEMPERA_CHECK(type == "sliding_attention" || type == "full_attention", f.where(),
                    ": layer_types: ", type.dump(),
                    " is not supported; known: full_attention, sliding_attention");
      chosen[layer] = type == "sliding_attention";
    }
  }
  const bool any = std::ranges::count(chosen, true) > 0;
  TEMPERA_CHECK(window >= 0, f.where(), ": sliding_window: ", window, " given, above 0 expected");
  c.window = any ? window : 0;
  c.window_layers = c.window > 0 ? layer_list(chosen) : "all";
}

const std::vector<std::pair<std::string, nn::Activation>>& plain_activations() {
  using nn::Activation;
  static const std::vector<std::pair<std::string, Activation>> known = {
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu", Activation::kGelu},
      {"relu", Activation::kRelu}};
  return known;
}

std::vector<Rule> llama_rules() {
  const std::string layer = "model.layers.{}.";
  const std::string attention = layer + "self_attn.";
  const std::string mlp = layer + "mlp.";
  std::vector<Rule> rules = {{"embedding.weight", {{"model.embed_tokens.weight"}}},
                             {"norm.weight", {{"model.norm.weight"}}},
                             {"head.weight", {{"lm_head.weight"}}},
                             {"layers.{}.attention.q_norm", {{attention + "q_norm.weight"}}},
                             {"layers.{}.attention.k_norm", {{attention + "k_norm.weight"}}}};
  for (const std::string what : {"weight", "bias"}) {
    rules.push_back({"layers.{}.attention.qkv." + what,
                     {{attention + "q_proj." + what},
                      {attention + "k_proj." + what},
                      {attention + "v_proj." + what}}});
    rules.push_back({"layers.{}.attention.out." + what, {{attention + "o_proj." + what}}});
    rules.push_back(
        {"layers.{}.mlp.in." + what, {{mlp + "gate_proj." + what}, {mlp + "up_proj." + what}}});
    rules.push_back({"layers.{}.mlp.out." + what, {{mlp + "down_proj." + what}}});
  }
  return rules;
}

void named_sizes(Fields& f, ModelConfig& c) {
  f.integer("vocab_size", c.vocabulary);
  f.integer("hidden_size", c.width);
  f.integer("num_hidden_layers", c.layers);
  f.integer("num_attention_heads", c.heads);
  f.integer("intermediate_size", c.mlp_size);
  f.integer("max_position_embeddings", c.context);
}

void shape_fields(Fields& f, ModelConfig& c, int64_t absent) {
  named_sizes(f, c);
  const bool own = absent == 0 || f.stated("num_key_value_heads");
  f.integer("num_key_value_heads", c.kv_heads, own ? c.heads : absent);
}

}  // namespace tempera::families
