#include "tempera/models/load.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/version.h"
#include "tempera/config/settings.h"
#include "tempera/families/gguf.h"
#include "tempera/io/json.h"
#include "tempera/models/described.h"
#include "tempera/models/source.h"
#include "tempera/models/weights.h"
#include "tempera/ops/blocks.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Not of models that the options give something to learn.
bool stays_in_blocks(const io::Gguf& file, const LoadOptions& options) {
  return options.blocks && !options.lora &&
         std::ranges::any_of(file.tensors(), [](const io::GgufTensor& tensor) {
           return ops::computes_on(tensor.type);
         });
}

LoadedModel load_gguf(const fs::path& path, const LoadOptions& options) {
  const auto file = std::make_shared<const io::Gguf>(path);
  const std::string name = path.string();
  const auto& family = families::gguf_family(*file, name);
  const bool blocks = stays_in_blocks(*file, options);
  LoadOptions shape = options;
  if (blocks) shape.dtype = torch::kFloat32;
  const auto config = families::gguf_config(*file, name);
  const auto source = blocks ? block_source_of(file) : source_of(*file);
  check_numbers(config, *source, name);
  LoadedModel loaded{
      .model = empty_model(config, shape), .path = path, .family = std::string(family.name)};
  load_weights(*loaded.model, families::gguf_rules(family), *source);
  if (blocks) loaded.model->set_compute_type(options.dtype);
  return loaded;
}

// Weights for a model that the options gave a temperature or adapters: those are its own.
void complete_state(nn::StateMap& state, const nn::Model& model, const LoadOptions& options) {
  if (options.temperature)
    std::erase_if(state, [](const auto& item) { return nn::is_temperature(item.first); });
  if (options.positions)
    std::erase_if(state, [](const auto& item) { return nn::is_frequency(item.first); });
  for (const auto& [name, tensor] : model.state())
    if ((options.temperature && nn::is_temperature(name)) ||
        (options.lora && nn::is_adapter(name)) || (options.positions && nn::is_frequency(name)))
      state[name] = tensor;
}

LoadedModel load_own(const fs::path& folder, const Json& json, const LoadOptions& options) {
  const std::string file = (folder / "config.json").string();
  const Json& own = json["tempera"];
  if (own.is_object() && own.contains("base")) {
    const io::Safetensors weights(folder);
    return {
        .model = load_described(read_description(own, file), *source_of(weights), file, options),
        .path = folder,
        .family = "tempera",
        .config = json};
  }
  TEMPERA_CHECK(own.is_object() && own.contains("config"), file,
                ": the object 'tempera' has no 'config'");
  auto config = config::from_json<nn::ModelConfig>(own["config"], file);
  const io::Safetensors weights(folder);
  check_numbers(config, *source_of(weights), file);
  LoadedModel loaded{.model = empty_model(config, options),
                     .path = folder,
                     .family = "tempera",
                     .config = json,
                     .tokenizer = own.value("tokenizer", "")};
  nn::StateMap state;
  for (const io::TensorView& view : weights.tensors()) state[view.name] = tensor_of(view);
  complete_state(state, *loaded.model, options);
  loaded.model->load_state(state);
  return loaded;
}

LoadedModel load_folder(const fs::path& folder, const LoadOptions& options) {
  const fs::path file = folder / "config.json";
  const Json json = io::parse_json(read_file(file, kMostConfig), file.string());
  TEMPERA_CHECK(json.is_object(), file.string(), ": an object expected");
  if (json.contains("tempera")) return load_own(folder, json, options);
  TEMPERA_CHECK(json.contains("model_type") && json["model_type"].is_string(), file.string(),
                ": the field model_type is missing");
  const auto& family = families::find_family(json["model_type"].get<std::string>(), file.string());
  const io::Safetensors weights(folder);
  auto config = families::read_config(family, json, file.string());
  const auto source = source_of(weights);
  const NameOptions names{family.prefix, family.unused};
  check_numbers(config, *source, file.string());
  settle(config, family.rules(config), *source, names);
  LoadedModel loaded{.model = empty_model(config, options),
                     .path = folder,
                     .family = std::string(family.name),
                     .config = json};
  load_weights(*loaded.model, family.rules(config), *source, names);
  return loaded;
}

}  // namespace

std::shared_ptr<nn::Model> empty_model(nn::ModelConfig config, const LoadOptions& options) {
  if (options.temperature) {
    config.temperature = retrofitted(*options.temperature);
    config.cross_temperature = nn::ModelConfig().cross_temperature;
  }
  if (options.lora) {
    TEMPERA_CHECK(config.lora.rank == 0,
                  "the model has adapters already; merge them first (tempera export --fold)");
    config.lora = *options.lora;
  }
  if (options.positions) {
    config.context = options.positions->context;
    config.rope = options.positions->rope;
  }
  auto model = nn::make_empty_model(config);
  if (options.dtype != torch::kFloat32) {
    for (const auto& parameter : model->parameter_list())
      if (!nn::is_added(parameter.name))
        parameter.tensor.set_data(parameter.tensor.to(options.dtype));
    model->set_compute_type(options.dtype);
  }
  model->eval();
  return model;
}

fs::path find_model(const fs::path& path) {
  if (path.extension() == ".gguf" && fs::is_regular_file(path)) return path;
  for (const fs::path& candidate : {path, path / "best", path / "last"})
    if (fs::exists(candidate / "config.json")) return candidate;
  throw Error(concat("'", path.string(),
                     "' is no model; expected a .gguf file, a folder with "
                     "config.json and model.safetensors, or the folder of a training run"));
}

LoadedModel load_model(const fs::path& path, const LoadOptions& options) {
  const fs::path found = find_model(path);
  try {
    auto loaded =
        found.extension() == ".gguf" ? load_gguf(found, options) : load_folder(found, options);
    if (options.cache_type) loaded.model->set_cache_type(*options.cache_type);
    return loaded;
  } catch (const UsageError& error) {
    throw Error(concat(found.string(), ": ", error.what()));
  }
}

std::shared_ptr<nn::Model> clone_model(const nn::Model& model, const LoadOptions& options) {
  auto clone = empty_model(model.config(), options);
  nn::StateMap state = model.state();
  complete_state(state, *clone, options);
  clone->load_state(state);
  return clone;
}

std::shared_ptr<nn::Model> with_temperature(const nn::Model& model,
                                            const nn::TemperatureConfig& temperature) {
  auto other = empty_model(model.config(), {.temperature = temperature});
  other->set_compute_type(model.compute_type());
  other->set_cache_type(model.cache_type());
  const torch::NoGradGuard no_grad;
  const auto modules = other->named_modules();
  const auto parameters = model.named_parameters(), buffers = model.named_buffers();
  for (auto& item : other->named_parameters())
    if (!nn::is_temperature(item.key()) && !set_weight(modules, item.key(), parameters[item.key()]))
      item.value().set_data(parameters[item.key()]);
  for (auto& item : other->named_buffers())
    if (!nn::is_temperature(item.key())) item.value().set_data(buffers[item.key()]);
  return other;
}

nn::TemperatureConfig retrofitted(const nn::TemperatureConfig& temperature) {
  nn::TemperatureConfig full = temperature;
  for (const auto& declared : method_declarations(temperature.method, Origin::kLoaded))
    full.options.try_emplace(declared.name, declared.value);
  return full;
}

std::string model_config_json(const nn::ModelConfig& config, const std::string& tokenizer) {
  // No other program runs it without its temperature: the type is our own.
  const Json json{{"model_type", "tempera"},
                  {"vocab_size", config.vocabulary},
                  {"hidden_size", config.width},
                  {"num_hidden_layers", config.layers},
                  {"num_attention_heads", config.heads},
                  {"max_position_embeddings", config.context},
                  {"torch_dtype", "float32"},
                  {"tempera",
                   {{"version", version()},
                    {"tokenizer", tokenizer},
                    {"config", config::to_json(config::describe(config))}}}};
  return json.dump(2) + "\n";
}

}  // namespace tempera::models
