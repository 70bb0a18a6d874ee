#include "tempera/models/export.h"

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/families/family.h"
#include "tempera/models/described.h"
#include "tempera/models/fold.h"
#include "tempera/models/tensor_file.h"
#include "tempera/models/tokenizer.h"
#include "tempera/models/weights.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const char* dtype_word(torch::ScalarType dtype) {
  if (dtype == torch::kBFloat16) return "bfloat16";
  if (dtype == torch::kHalf) return "float16";
  return "float32";
}

nn::StateMap converted(const nn::StateMap& state, torch::ScalarType dtype) {
  nn::StateMap out;
  for (const auto& [name, tensor] : state)
    out[name] = tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  return out;
}

void write_state(const fs::path& folder, const nn::StateMap& state, uint64_t shard_bytes) {
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : state) views.push_back(view_of(name, tensor));
  io::write_safetensors_folder(folder, views, {{"format", "pt"}}, shard_bytes);
}

// The temperature is in the weights, or in the one scale that the family to write can state.
FoldedModel without_temperature(const LoadedModel& loaded, const ExportOptions& options) {
  nn::Model& model = *loaded.model;
  const auto factor = common_logit_factor(model);
  if (options.as != "granite" || !factor || *factor <= 0) return fold(model);
  FoldedModel scaled{model.config(), merged_weights(model)};
  const double natural = 1 / std::sqrt(static_cast<double>(scaled.config.size_of_head()));
  const double scale = scaled.config.attention_scale;
  scaled.config.attention_scale = (scale > 0 ? scale : natural) * *factor;
  scaled.config.temperature = {};
  scaled.config.cross_temperature = nn::ModelConfig().cross_temperature;
  scaled.config.lora = {};
  scaled.config.rope = model.settled_rope();
  return scaled;
}

const families::Family& family_to_write(const LoadedModel& loaded, const nn::ModelConfig& config,
                                        std::string_view as) {
  if (!as.empty()) {
    const auto& family = families::find_family(as, "--as");
    TEMPERA_CHECK(families::can_express(family, config), "the model has parts that ", as,
                  " has no words for; leave --as out");
    return family;
  }
  for (const auto& family : families::all_families())
    if (family.name == loaded.family && families::can_express(family, config)) return family;
  const auto* family = families::family_of(config);
  TEMPERA_CHECK(family,
                "no family of transformers has a model of this shape; export without "
                "--fold writes our own format");
  return *family;
}

// A family's defaults for these are not the model's.
void put_token_ids(const LoadedModel& loaded, Json& config) {
  const auto tokenizer = tokenizer_of(loaded);
  if (tokenizer == nullptr) return;
  const auto special = tokenizer->special();
  for (const auto& [key, id] :
       {std::pair("bos_token_id", special.begin_of_text),
        std::pair("eos_token_id", special.end_of_text), std::pair("pad_token_id", special.pad)})
    config[key] = id ? Json(*id) : Json();
}

// config.json of a model in a family's form.
Json family_config(const LoadedModel& loaded, const nn::ModelConfig& model,
                   const families::Family& family, torch::ScalarType dtype) {
  // Fields that say nothing about the logits stay as they were, of another family only these.
  Json config = Json::object();
  if (loaded.config.is_object())
    for (const auto& [key, value] : loaded.config.items())
      if (loaded.family == family.name || key.ends_with("_token_id")) config[key] = value;
  for (const char* key : {"rope_parameters", "rope_scaling", "torch_dtype"}) config.erase(key);
  const bool own = loaded.family == "tempera";
  if (own || loaded.config.is_null()) put_token_ids(loaded, config);
  Json fields = families::write_config(family, model);
  // The names of the classes are the model's own; a family knows their number alone.
  for (const char* key : {"id2label", "label2id"})
    if (config.contains(key) && fields.contains(key) && config[key].size() == fields[key].size())
      fields.erase(key);
  config.update(fields);
  config["dtype"] = dtype_word(dtype);
  return config;
}

void write_hf(const LoadedModel& loaded, const fs::path& folder, const FoldedModel& model,
              const families::Family& family, const ExportOptions& options) {
  const Json config = family_config(loaded, model.config, family, options.dtype);
  write_file(folder / "config.json", config.dump(2) + "\n");
  write_state(
      folder,
      converted(file_tensors(model.config, model.state, family.rules(model.config)), options.dtype),
      options.shard_bytes);
}

void write_own(const LoadedModel& loaded, const fs::path& folder, const ExportOptions& options) {
  write_file(folder / "config.json", model_config_json(loaded.model->config(), loaded.tokenizer));
  write_state(folder, converted(loaded.model->state(), options.dtype), options.shard_bytes);
}

}  // namespace

std::string export_folder(const LoadedModel& loaded, NewOutput& out, const ExportOptions& options) {
  std::string written = "tempera";
  if (needs_fold(*loaded.model) && !options.fold) {
    TEMPERA_CHECK(options.as.empty(), "--as ", options.as,
                  ": the model has a temperature or adapters, which that format has no words for; "
                  "give --fold");
    write_own(loaded, out.part(), options);
  } else {
    const auto model = without_temperature(loaded, options);
    const auto& family = family_to_write(loaded, model.config, options.as);
    write_hf(loaded, out.part(), model, family, options);
    written = family.name;
  }
  for (const auto& [name, bytes] : stored_tokenizer(loaded).files)
    write_file(out.part() / name, bytes);
  stop_if_interrupted("interrupted: nothing was written; run the same command again");
  out.finish();
  return written;
}

DescribedState describe_model(const LoadedModel& loaded) {
  nn::Model& model = *loaded.model;
  TEMPERA_CHECK(model.config().cross_temperature.method == nn::kSameMethod,
                "the cross-attentions have a temperature of their own ('",
                model.config().cross_temperature.method,
                "'), which the model type 'tempera' has no words for; use the program");
  FoldedModel plain{model.config(), merged_weights(model)};
  plain.config.temperature = {};
  plain.config.cross_temperature = nn::ModelConfig().cross_temperature;
  plain.config.lora = {};
  plain.config.rope = model.settled_rope();
  const auto& family = family_to_write(loaded, plain.config, "");
  const auto rules = family.rules(plain.config);
  DescribedState state{.description = {family_config(loaded, plain.config, family, torch::kFloat32),
                                       model.config().temperature},
                       .weights = file_tensors(plain.config, plain.state, rules),
                       .numbers = {}};
  for (const auto& [name, tensor] : model.state())
    if (nn::is_temperature(name)) state.numbers[described_name(rules, name)] = tensor;
  return state;
}

}  // namespace tempera::models
