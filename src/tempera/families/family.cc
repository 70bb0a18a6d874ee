#include "tempera/families/family.h"

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/families/bert.h"
#include "tempera/families/gpt.h"
#include "tempera/families/llama.h"
#include "tempera/families/t5.h"

namespace tempera::families {
namespace {

using nn::ModelConfig;

// What a file of another program does not say, or says for training alone.
void forget_training(ModelConfig& config) {
  const ModelConfig plain;
  config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
  config.init = plain.init;
  config.init_std = plain.init_std;
  config.temperature = plain.temperature;
  config.cross_temperature = plain.cross_temperature;
}

// The same model with everything said outright.
ModelConfig spelled_out(ModelConfig config) {
  forget_training(config);
  config.outputs = config.output_count();
  config.kv_heads = config.kv_head_count();
  config.head_size = config.size_of_head();
  config.mlp_size = config.size_of_mlp();
  if (config.kind == nn::ModelKind::kEncoderDecoder)
    config.decoder_layers = config.layer_count(AttentionKind::kCausal);
  // Whether there is a pooler that nothing reads is left to the tensors.
  if (config.head == nn::HeadKind::kNone) config.pooler = false;
  if (config.rope.scaling == nn::RopeScaling::kFactors) {
    auto& rope = config.rope;
    if (rope.attention_factor == 0) rope.attention_factor = 1;
    if (rope.original_context == 0) rope.original_context = config.context;
    if (rope.short_factors == rope.factors) rope.short_factors.clear();
  }
  const double natural = 1 / std::sqrt(static_cast<double>(config.head_size));
  // Formats that write 1 / scale^2 give it back to the last bit but one.
  if (std::abs(config.attention_scale - natural) < 1e-12) config.attention_scale = 0;
  return config;
}

}  // namespace

const std::vector<Family>& all_families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all = llama_families();
    for (const auto& more : {gpt_families(), bert_families(), t5_families()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return families;
}

const Family& find_family(std::string_view model_type, std::string_view where) {
  std::vector<std::string> names;
  for (const Family& family : all_families()) {
    if (family.name == model_type) return family;
    names.emplace_back(family.name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(concat(where, ": model_type '", model_type, "' is not supported; known: ", list,
                     did_you_mean(model_type, names)));
}

ModelConfig read_config(const Family& family, const nlohmann::json& json,
                        const std::string& where) {
  ModelConfig config;
  family.shape(config);
  auto fields = Fields::reader(json, where);
  family.fields(fields, config);
  fields.finish();
  return config;
}

nlohmann::json write_config(const Family& family, const ModelConfig& config) {
  // Readers do not know our zeros, which stand for what follows from the rest.
  ModelConfig copy = config;
  copy.kv_heads = config.kv_head_count();
  copy.mlp_size = config.size_of_mlp();
  auto fields = Fields::writer();
  fields.set("model_type", family.name);
  fields.set("architectures", nlohmann::json::array({family.architecture}));
  family.fields(fields, copy);
  return fields.json();
}

bool same_model(const ModelConfig& a, const ModelConfig& b) {
  return spelled_out(a) == spelled_out(b);
}

bool can_express(const Family& family, const ModelConfig& config) {
  const ModelConfig wanted = spelled_out(config);
  try {
    return same_model(read_config(family, write_config(family, wanted), ""), wanted);
  } catch (const Error&) {
    return false;
  }
}

const Family* family_of(const ModelConfig& config) {
  for (const Family& family : all_families())
    if (can_express(family, config)) return &family;
  return nullptr;
}

std::string at_layer(const std::string& pattern, int64_t layer) {
  const size_t place = pattern.find("{}");
  if (place == std::string::npos) return pattern;
  return pattern.substr(0, place) + std::to_string(layer) + pattern.substr(place + 2);
}

}  // namespace tempera::families
