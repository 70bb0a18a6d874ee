#include "tempera/train/graph_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

// What of a batch a graph reads.
constexpr std::array kParts = {&nn::Batch::tokens, &nn::Batch::targets, &nn::Batch::shares,
                               &nn::Batch::positions, &nn::Batch::attention_scale};

}  // namespace

bool GraphStep::possible(const nn::Model& model, const torch::Device& device,
                         const OptimizerOptions& options) {
  const nn::ModelConfig& config = model.config();
  return ops::CudaGraph::possible(device) && options.kind == OptimizerKind::kAdamW &&
         config.dropout_attention == 0 && config.dropout_residual == 0 &&
         config.dropout_embedding == 0;
}

GraphStep::GraphStep(nn::Model& model, Optimizer& optimizer, const OptimizerOptions& options,
                     double label_smoothing)
    : model_(model),
      optimizer_(optimizer),
      options_(options),
      label_smoothing_(label_smoothing),
      numbers_(torch::zeros({3}, torch::dtype(torch::kFloat32).device(torch::kCUDA))) {}

bool GraphStep::has_shape_of(const nn::Batch& batch) const {
  return batch_.position_end == batch.position_end && std::ranges::all_of(kParts, [&](auto part) {
           const auto &mine = batch_.*part, &other = batch.*part;
           return mine.defined() == other.defined() &&
                  (!mine.defined() || mine.sizes() == other.sizes());
         });
}

bool GraphStep::takes(const nn::Batch& batch) {
  return !batch.documents.defined() && !batch.key_start.defined() && !batch.key_end.defined() &&
         !batch.source.defined();
}

void GraphStep::load(const nn::Batch& batch) {
  TEMPERA_CHECK(takes(batch),
                "a graph has no mask, and a batch with documents or padding is given");
  offered_ = batch;
  std::vector<torch::Tensor> parts;
  for (const auto part : kParts) parts.push_back(batch.*part);
  prefetch_.start(parts);
}

torch::Tensor GraphStep::forward_and_backward() {
  model_.zero_grad();
  const WeightCopies::InUse copies(*copies_);
  const auto loss = model_.loss(batch_, label_smoothing_);
  loss.backward();
  return loss.detach();
}

void GraphStep::record() {
  update_.reset();
  gradients_.clear();
  copies_ = std::make_unique<WeightCopies>(model_);
  graph_ = std::make_unique<ops::CudaGraph>();
  model_.train();
  graph_->capture(
      [&] {
        forward_and_backward();
        // A parameter that this step gave no gradient gets none in later ones either.
        std::vector<ops::AdamWTensor> moving;
        for (ops::AdamWTensor& tensor : optimizer_.tensors()) {
          if (!tensor.parameter.grad().defined()) continue;
          tensor.copy = copies_->of(tensor.parameter);
          moving.push_back(std::move(tensor));
        }
        update_ = std::make_unique<ops::AdamWList>(std::move(moving));
        model_.zero_grad();
      },
      [&] {
        numbers_[0].copy_(forward_and_backward());
        const auto result = numbers_.narrow(0, 1, 2);
        update_->norm(options_.clip, result);
        update_->step(result);
      });
  update_->set_gradients();
  for (const torch::Tensor& parameter : model_.parameters())
    if (parameter.grad().defined()) gradients_.push_back({parameter, parameter.grad()});
}

void GraphStep::start(double rate) {
  const auto next = prefetch_.take();
  const bool recorded = graph_ && has_shape_of(offered_);
  for (size_t i = 0; i < kParts.size(); ++i) {
    auto& part = batch_.*kParts[i];
    if (!recorded)
      part = next[i].defined() ? next[i].clone() : next[i];
    else if (part.defined())
      part.copy_(next[i]);
  }
  batch_.position_end = offered_.position_end;
  if (!recorded) record();
  const int64_t last = std::exchange(step_, optimizer_.count_step());
  // The weights may have been changed without us: by another update, or by an operator.
  if (step_ != last + 1 || copies_->stale()) copies_->refresh();
  update_->set_step({.rate = rate,
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .epsilon = options_.epsilon,
                     .decay = 0,
                     .step = step_});
  graph_->replay();
}

GraphStep::Result GraphStep::finish() {
  const auto host = numbers_.cpu();
  for (const Gradient& kept : gradients_) kept.parameter.mutable_grad() = kept.gradient;
  return {host[0].item<double>(), host[1].item<double>(), batch_.tokens.numel()};
}

GraphFeed::GraphFeed(Make make, Load load) : make_(std::move(make)), load_(std::move(load)) {}

void GraphFeed::fetch_ahead(int64_t step) {
  const nn::Batch batch = make_(step);
  last_ = {step, GraphStep::takes(batch)};
  if (last_->loaded) load_(batch);
}

bool GraphFeed::take(int64_t step) {
  if (!last_ || last_->step != step) fetch_ahead(step);
  return std::exchange(last_, std::nullopt)->loaded;
}

}  // namespace tempera::train
