#include "tempera/nn/model.h"

#include <torch/nn/functional/loss.h>

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/nn/decoder.h"
#include "tempera/nn/encoder.h"
#include "tempera/nn/encoder_decoder.h"
#include "tempera/nn/learned_rope.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// Rows whose logits are held at once when every row's loss is wanted.
constexpr int64_t kLossRows = 1024;

// The name without the half of the model that it is in.
std::string_view part_name(std::string_view name) {
  for (const std::string_view half : {"encoder.", "decoder."})
    if (name.starts_with(half)) return name.substr(half.size());
  return name;
}

ParameterKind kind_of(const std::string& name, const torch::Tensor& tensor) {
  constexpr std::string_view kTables[] = {"embedding.weight", "positions.weight",
                                          "token_types.weight", "head.weight", "classifier.weight"};
  const auto part = part_name(name);
  if (is_temperature(name)) return ParameterKind::kTemperature;
  if (is_adapter(name)) return ParameterKind::kAdapter;
  if (is_frequency(name)) return ParameterKind::kFrequency;
  if (tensor.dim() < 2 || part == "relative_bias.weight") return ParameterKind::kVector;
  return std::ranges::count(kTables, part) > 0 ? ParameterKind::kEmbedding : ParameterKind::kMatrix;
}

std::string kind_text(ModelKind kind) {
  return kind == ModelKind::kEncoder          ? "an encoder"
         : kind == ModelKind::kEncoderDecoder ? "an encoder-decoder"
                                              : "a decoder";
}

}  // namespace

bool is_temperature(const std::string& name) {
  return name.find(".temperature.") != std::string::npos;
}

bool is_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

bool is_frequency(const std::string& name) { return part_name(name) == kRopeShift; }

torch::Tensor Model::project(const torch::Tensor& rows) const {
  auto scores = ops::linear(head_rows(rows), output_weight(), output_bias());
  if (config_.logit_scale != 1) scores = scores * config_.logit_scale;
  if (config_.logit_cap > 0) scores = (scores / config_.logit_cap).tanh() * config_.logit_cap;
  return scores;
}

torch::Tensor Model::loss(const Batch& batch, double label_smoothing) {
  TEMPERA_CHECK(batch.targets.defined(), "a loss needs targets, and the batch has none");
  auto rows = scored_rows(batch).flatten(0, -2);
  auto targets = batch.targets.flatten();
  auto shares = batch.shares.defined() ? batch.shares.flatten() : batch.shares;
  TEMPERA_CHECK(targets.size(0) == rows.size(0), "targets of the shape ", batch.targets.sizes(),
                " given, and the model scores ", rows.size(0), " rows");
  if (rows.is_cpu()) {
    // Tasks that ask a few questions of a long row need few rows of logits.
    const auto scored = targets.ge(0).nonzero().squeeze(1);
    if (scored.size(0) < targets.size(0)) {
      rows = rows.index_select(0, scored);
      targets = targets.index_select(0, scored);
      if (shares.defined()) shares = shares.index_select(0, scored);
    }
  }
  if (config_.logit_cap > 0 || output_bias().defined()) {
    const auto options = torch::nn::functional::CrossEntropyFuncOptions()
                             .ignore_index(-100)
                             .label_smoothing(label_smoothing)
                             .reduction(torch::kNone);
    const auto losses =
        torch::nn::functional::cross_entropy(project(rows).to(torch::kFloat32), targets, options);
    if (!shares.defined()) shares = torch::ones_like(losses);
    const auto count = shares.masked_fill(targets < 0, 0).sum();
    // torch's own mean over no targets is NaN.
    return (losses * shares).sum() / torch::where(count > 0, count, torch::ones_like(count));
  }
  rows = head_rows(rows);
  if (config_.logit_scale != 1) rows = rows * config_.logit_scale;
  return ops::linear_cross_entropy(rows, output_weight().to(rows.scalar_type()), targets,
                                   label_smoothing, shares);
}

torch::Tensor Model::whole_hidden(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  if (!context_share_) return hidden(batch);
  return context_share_->whole(hidden(with_own_targets(batch, *context_share_)))
      .narrow(1, 0, batch.tokens.size(1));
}

torch::Tensor Model::token_losses(const Batch& batch) {
  TEMPERA_CHECK(batch.targets.defined(), "a loss needs targets, and the batch has none");
  const torch::NoGradGuard no_grad;
  // Targets of all rows are given, and not of this rank's alone: so are their losses.
  if (context_share_ && batch.targets.sizes() == batch.tokens.sizes())
    return context_share_->whole(token_losses(with_own_targets(batch, *context_share_)))
        .narrow(1, 0, batch.tokens.size(1));
  return token_losses(scored_rows(batch), batch.targets);
}

torch::Tensor Model::token_losses(const torch::Tensor& scored,
                                  const torch::Tensor& all_targets) const {
  const torch::NoGradGuard no_grad;
  const auto rows = scored.flatten(0, -2).split(kLossRows);
  const auto targets = all_targets.flatten().split(kLossRows);
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).reduction(torch::kNone);
  std::vector<torch::Tensor> losses;
  for (size_t i = 0; i < rows.size(); ++i)
    losses.push_back(torch::nn::functional::cross_entropy(project(rows[i]).to(torch::kFloat32),
                                                          targets[i], options));
  return torch::cat(losses).view_as(all_targets);
}

PassOptions Model::pass_options(const Batch& batch, const LayerObserver& observer) const {
  PassOptions options{.type = compute_type_,
                      .recompute = recompute_,
                      .observer = observer,
                      .blocks = block_observer_,
                      .share = context_share_};
  if (is_training()) options.dropout_seed = batch.dropout_seed;
  return options;
}

PassOptions Model::inspecting(const torch::Tensor& rows, const torch::Tensor& keys) const {
  Inspection wanted;
  if (rows.defined() || keys.defined()) {
    TEMPERA_CHECK(rows.dim() == 2 && rows.sizes() == keys.sizes(),
                  "rows and keys to inspect must both have the shape (sequences, pairs)");
    const auto device = output_weight().device();
    wanted = {rows.to(device), keys.to(device), {}};
  }
  return {.type = compute_type_,
          .inspection = std::make_shared<Inspection>(std::move(wanted)),
          .blocks = block_observer_};
}

void Model::check_inference() const {
  TEMPERA_CHECK(!is_training(), "a cache is for inference: call eval() on the model first");
}

PagedCache Model::make_paged_cache(int64_t /*blocks*/, int64_t /*block_size*/) {
  throw Error(concat("the model is ", kind_text(config_.kind),
                     "; only decoders have a cache for many sequences"));
}

torch::Tensor Model::extend_paged(const PagedRows& /*rows*/, PagedCache& /*cache*/) {
  throw Error(concat("the model is ", kind_text(config_.kind),
                     "; only decoders have a cache for many sequences"));
}

ModelCache Model::make_cache(int64_t /*batch*/, int64_t /*capacity*/,
                             const torch::Tensor& /*start*/) {
  throw Error(concat("the model is ", kind_text(config_.kind),
                     config_.kind == ModelKind::kEncoderDecoder
                         ? ", whose cache begins with a source: read_source() makes it"
                         : ", which reads whole sequences: it has no cache"));
}

ModelCache Model::read_source(const Batch& /*batch*/, int64_t /*capacity*/) {
  throw Error(
      concat("the model is ", kind_text(config_.kind), ": only an encoder-decoder reads a source"));
}

torch::Tensor Model::extend(const torch::Tensor& /*tokens*/, ModelCache& /*cache*/) {
  throw Error(concat("the model is ", kind_text(config_.kind),
                     ", which reads whole sequences: nothing can be added to one"));
}

void Model::set_context(int64_t context, const RopeConfig& rope) {
  TEMPERA_CHECK(config_.max_length() == 0 || context <= config_.max_length(), "context ", context,
                " given: the model has learned positions for ", config_.max_length(), " rows");
  config_.context = context;
  config_.rope = rope;
}

RopeConfig Model::settled_rope() const {
  const auto own = named_parameters(/*recurse=*/false);
  const auto* shift = own.find(kRopeShift);
  return shift ? nn::settled_rope(config_.rope, config_.rotary_size(), *shift) : config_.rope;
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
  for (const auto& [name, original] : originals_) map[name] = original;
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
  if (originals_.empty()) return;
  for (const auto& item : named_parameters())
    if (const auto found = originals_.find(item.key()); found != originals_.end())
      item.value().copy_(found->second);
}

void Model::round_frozen(torch::ScalarType type) {
  set_compute_type(type);
  for (const auto& parameter : parameter_list()) {
    const auto& tensor = parameter.tensor;
    // Vectors are small, and products with them keep all their digits.
    const bool matrix =
        parameter.kind == ParameterKind::kMatrix || parameter.kind == ParameterKind::kEmbedding;
    if (!matrix || tensor.requires_grad() || tensor.scalar_type() == type) continue;
    originals_[parameter.name] = tensor.detach().to(torch::kCPU);
    tensor.set_data(tensor.detach().to(type));
  }
}

void require_decoder(const Model& model, std::string_view job) {
  TEMPERA_CHECK(model.config().kind == ModelKind::kDecoder, "the model is ",
                kind_text(model.config().kind), "; ", job, " needs a decoder");
}

std::shared_ptr<Model> make_empty_model(const ModelConfig& config) {
  config.validate();
  switch (config.kind) {
    case ModelKind::kDecoder:
      return std::make_shared<Decoder>(config);
    case ModelKind::kEncoder:
      return std::make_shared<Encoder>(config);
    case ModelKind::kEncoderDecoder:
      return std::make_shared<EncoderDecoder>(config);
  }
  TORCH_INTERNAL_ASSERT(false, "a kind without a case");
}

std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed) {
  auto model = make_empty_model(config);
  initialize(*model, seed);
  return model;
}

}  // namespace tempera::nn
