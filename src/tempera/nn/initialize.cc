#include <torch/nn/init.h>

#include <cmath>
#include <string>

#include "tempera/nn/dropout.h"
#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// FNV-1a: the same on every machine.
uint64_t name_hash(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

class Initializer {
 public:
  Initializer(const Model& model, uint64_t seed)
      : config_(model.config()), state_(model.state()), seed_(seed) {}

  void fill(const NamedParameter& parameter) const {
    const std::string& name = parameter.name;
    const bool gain = name.ends_with("norm.weight") || name.ends_with("_norm");
    if (parameter.kind == ParameterKind::kTemperature) return;
    if (parameter.kind == ParameterKind::kAdapter) {
      fill_adapter(parameter);
    } else if (gain) {
      torch::nn::init::ones_(parameter.tensor);
    } else if (config_.init == InitKind::kNormal) {
      fill_normal(parameter);
    } else {
      fill_fan_in(parameter);
    }
  }

 private:
  void fill_normal(const NamedParameter& parameter) const {
    if (parameter.tensor.dim() < 2) {
      torch::nn::init::zeros_(parameter.tensor);
      return;
    }
    // What adds to the residual sum: 2 a layer, so that the sum keeps its size.
    const bool residual = parameter.name.ends_with(".out.weight");
    const double depth = 2 * static_cast<double>(config_.layers);
    draw_normal(parameter, residual ? config_.init_std / std::sqrt(depth) : config_.init_std);
  }

  void fill_fan_in(const NamedParameter& parameter) const {
    const std::string& name = parameter.name;
    if (name == "shift" || name.ends_with(".shift")) {
      draw_normal(parameter, 1);
    } else if (parameter.kind == ParameterKind::kMatrix || name == "head.weight" ||
               name == "classifier.weight") {
      draw_uniform(parameter, parameter.tensor.size(1));
    } else if (parameter.kind == ParameterKind::kEmbedding) {
      draw_normal(parameter, 1 / std::sqrt(static_cast<double>(config_.width)));
    } else {
      fill_vector(parameter);
    }
  }

  // The bias of a projection is drawn as its matrix is; the bias of a norm and relative biases are
  // 0.
  void fill_vector(const NamedParameter& parameter) const {
    const std::string& name = parameter.name;
    if (name.ends_with(".bias")) {
      const auto weight = state_.at(name.substr(0, name.size() - 4) + "weight");
      if (weight.dim() == 2) {
        draw_uniform(parameter, weight.size(1));
        return;
      }
    }
    torch::nn::init::zeros_(parameter.tensor);
  }

  // One of the two factors is 0, so that the model begins as it was.
  void fill_adapter(const NamedParameter& parameter) const {
    if (parameter.name.ends_with("lora_b"))
      torch::nn::init::zeros_(parameter.tensor);
    else
      draw_uniform(parameter, parameter.tensor.size(1));
  }

  void draw_normal(const NamedParameter& parameter, double deviation) const {
    auto values = torch::empty(parameter.tensor.sizes(), torch::kFloat32);
    parameter.tensor.copy_(values.normal_(0, deviation, generator(parameter)));
  }

  void draw_uniform(const NamedParameter& parameter, int64_t inputs) const {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    auto values = torch::empty(parameter.tensor.sizes(), torch::kFloat32);
    parameter.tensor.copy_(values.uniform_(-bound, bound, generator(parameter)));
  }

  torch::Generator generator(const NamedParameter& parameter) const {
    return seeded_generator(mix_seed(seed_, name_hash(parameter.name)), torch::kCPU);
  }

  const ModelConfig& config_;
  StateMap state_;
  uint64_t seed_;
};

}  // namespace

void initialize(Model& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const Initializer initializer(model, seed);
  for (const auto& parameter : model.parameter_list()) initializer.fill(parameter);
}

void initialize_adapters(Model& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const Initializer initializer(model, seed);
  for (const auto& parameter : model.parameter_list())
    if (parameter.kind == ParameterKind::kAdapter) initializer.fill(parameter);
}

}  // namespace tempera::nn
