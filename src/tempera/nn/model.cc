#include "tempera/nn/model.h"

#include <torch/nn/functional/loss.h>

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/nn/decoder.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// Rows whose logits are held at once when every row's loss is wanted.
constexpr int64_t kLossRows = 1024;

ParameterKind kind_of(const std::string& name, const torch::Tensor& tensor) {
  if (is_temperature(name)) return ParameterKind::kTemperature;
  if (is_adapter(name)) return ParameterKind::kAdapter;
  if (tensor.dim() < 2 || name == "relative_bias.weight") return ParameterKind::kVector;
  if (name == "embedding.weight" || name == "positions.weight" || name == "head.weight")
    return ParameterKind::kEmbedding;
  return ParameterKind::kMatrix;
}

}  // namespace

bool is_temperature(const std::string& name) {
  return name.find(".temperature.") != std::string::npos;
}

bool is_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

torch::Tensor Model::project(const torch::Tensor& hidden) const {
  auto scores = ops::linear(hidden, output_weight());
  if (config_.logit_scale != 1) scores = scores * config_.logit_scale;
  if (config_.logit_cap > 0) scores = (scores / config_.logit_cap).tanh() * config_.logit_cap;
  return scores;
}

torch::Tensor Model::loss(const Batch& batch, double label_smoothing) {
  TEMPERA_CHECK(batch.targets.defined(), "a loss needs targets, and the batch has none");
  auto rows = hidden(batch).flatten(0, 1);
  auto targets = batch.targets.flatten();
  if (rows.is_cpu()) {
    // Tasks that ask a few questions of a long row need few rows of logits.
    const auto scored = targets.ge(0).nonzero().squeeze(1);
    if (scored.size(0) < targets.size(0)) {
      rows = rows.index_select(0, scored);
      targets = targets.index_select(0, scored);
    }
  }
  if (config_.logit_cap > 0) {
    const auto options =
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).label_smoothing(
            label_smoothing);
    return torch::nn::functional::cross_entropy(project(rows).to(torch::kFloat32), targets,
                                                options);
  }
  if (config_.logit_scale != 1) rows = rows * config_.logit_scale;
  return ops::linear_cross_entropy(rows, output_weight().to(rows.scalar_type()), targets,
                                   label_smoothing);
}

torch::Tensor Model::token_losses(const Batch& batch) {
  TEMPERA_CHECK(batch.targets.defined(), "a loss needs targets, and the batch has none");
  const torch::NoGradGuard no_grad;
  const auto rows = hidden(batch).flatten(0, 1).split(kLossRows);
  const auto targets = batch.targets.flatten().split(kLossRows);
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).reduction(torch::kNone);
  std::vector<torch::Tensor> losses;
  for (size_t i = 0; i < rows.size(); ++i)
    losses.push_back(torch::nn::functional::cross_entropy(project(rows[i]).to(torch::kFloat32),
                                                          targets[i], options));
  return torch::cat(losses).view_as(batch.targets);
}

void Model::set_context(int64_t context, double rope_base) {
  TEMPERA_CHECK(config_.max_length() == 0 || context <= config_.max_length(), "context ", context,
                " given: the model has learned positions for ", config_.max_length(), " rows");
  config_.context = context;
  config_.rope.base = rope_base;
}

std::vector<NamedParameter> Model::parameter_list() const {
  std::vector<NamedParameter> list;
  for (const auto& item : named_parameters())
    list.push_back({item.key(), item.value(), kind_of(item.key(), item.value())});
  return list;
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

int64_t Model::temperature_parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameter_list())
    if (parameter.kind == ParameterKind::kTemperature) count += parameter.tensor.numel();
  return count;
}

StateMap Model::state() const {
  StateMap map;
  for (const auto& item : named_parameters()) map[item.key()] = item.value().detach();
  for (const auto& item : named_buffers()) map[item.key()] = item.value().detach();
  return map;
}

void Model::load_state(const StateMap& given) {
  const StateMap own = state();
  std::vector<std::string> missing, unknown;
  for (const auto& [name, tensor] : own)
    if (!given.contains(name)) missing.push_back(name);
  for (const auto& [name, tensor] : given)
    if (!own.contains(name)) unknown.push_back(name);
  TEMPERA_CHECK(missing.empty(), "the weights lack ", listed(missing),
                "; they are of a model with another configuration");
  TEMPERA_CHECK(unknown.empty(), "the weights have ", listed(unknown),
                ", which the model has not; they are of a model with another configuration");
  for (const auto& [name, tensor] : own)
    TEMPERA_CHECK(given.at(name).sizes() == tensor.sizes(), name, ": shape ",
                  given.at(name).sizes(), " given, ", tensor.sizes(), " expected");
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(given.at(name));
}

std::shared_ptr<Model> make_empty_model(const ModelConfig& config) {
  config.validate();
  return std::make_shared<Decoder>(config);
}

std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed) {
  auto model = make_empty_model(config);
  initialize(*model, seed);
  return model;
}

}  // namespace tempera::nn
