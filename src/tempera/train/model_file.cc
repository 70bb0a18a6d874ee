#include "tempera/train/model_file.h"

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/version.h"
#include "tempera/config/settings.h"
#include "tempera/io/json.h"
#include "tempera/train/run_folder.h"
#include "tempera/train/tensor_file.h"

namespace tempera::train {
namespace {

constexpr uint64_t kMostConfig = 16U << 20;

}  // namespace

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

LoadedModel load_model(const std::filesystem::path& path) {
  const auto folder = find_checkpoint(path);
  const auto file = folder / "config.json";
  const std::string text = read_file(file, kMostConfig);
  io::parse_json(text, file.string());
  const Json json = Json::parse(text);
  TEMPERA_CHECK(json.is_object() && json.contains("tempera") && json["tempera"].is_object() &&
                    json["tempera"].contains("config"),
                file.string(), " is not the configuration of a tempera model");
  const Json& own = json["tempera"];
  LoadedModel loaded;
  loaded.model =
      nn::make_empty_model(config::from_json<nn::ModelConfig>(own["config"], file.string()));
  loaded.model->load_state(read_tensors(folder / "model.safetensors"));
  loaded.model->eval();
  loaded.tokenizer = own.value("tokenizer", "");
  loaded.path = folder;
  return loaded;
}

}  // namespace tempera::train
