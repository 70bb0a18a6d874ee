#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tempera/nn/model.h"

// MODEL of every verb: a .gguf file, or a folder with config.json and safetensors, ours or one of
// transformers.
namespace tempera::models {

// Bytes of the largest config.json that is read.
inline constexpr uint64_t kMostConfig = 16U << 20;

struct LoadOptions {
  torch::ScalarType dtype = torch::kFloat32;         // of the weights and of the rows
  std::optional<torch::ScalarType> cache_type = {};  // of the model's caches; none: as the rows
  // Matrices in blocks of few bits stay as they are in the file, which stays mapped, for inference
  // on the CPU; the rest of such a model's weights is float32.
  bool blocks = false;
  // Given: the model gets this temperature, in place of the one it may have.
  std::optional<nn::TemperatureConfig> temperature = {};
  // Given: the model gets adapters, whose values nn::initialize_adapters() sets.
  std::optional<nn::LoraConfig> lora = {};
  // Given: the model gets these positions, of which nothing is learned yet, for this context.
  struct Positions {
    int64_t context = 0;
    nn::RopeConfig rope = {};
  };
  std::optional<Positions> positions = {};
};

struct LoadedModel {
  std::shared_ptr<nn::Model> model;  // in eval mode, on the CPU
  std::filesystem::path path;        // of the file, or of the folder that holds the weights
  std::string family = {};           // model_type; "tempera": our own
  nlohmann::json config = {};        // config.json as it is; null for GGUF
  std::string tokenizer = {};        // of our own models: its name
};

// Throws Error with the file's name where something in it is wrong. The folder of a training run
// stands for its best checkpoint, else its last.
LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options = {});

// A model without values, of the type and with the additions that the options name.
std::shared_ptr<nn::Model> empty_model(nn::ModelConfig config, const LoadOptions& options);

// The same weights in another model, which may get what the options name.
std::shared_ptr<nn::Model> clone_model(const nn::Model& model, const LoadOptions& options = {});

// The same model with another temperature, which starts as its options say. All other weights are
// the tensors of `model`, not copies.
std::shared_ptr<nn::Model> with_temperature(const nn::Model& model,
                                            const nn::TemperatureConfig& temperature);

// The folder that holds the weights of what a user names. Throws where there is none.
std::filesystem::path find_model(const std::filesystem::path& path);

// The same temperature with the defaults that a model trained without it wants, said outright.
nn::TemperatureConfig retrofitted(const nn::TemperatureConfig& temperature);

// config.json of our own models: the shape, the method, and the tokenizer's name (empty: none).
std::string model_config_json(const nn::ModelConfig& config, const std::string& tokenizer);

}  // namespace tempera::models
