#include "tempera/train/graph_step.h"

#include <utility>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::train {

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

bool GraphStep::takes(const nn::Batch& batch) {
  return !batch.documents.defined() && !batch.key_start.defined() && !batch.key_end.defined() &&
         !batch.source.defined();
}

void GraphStep::load(const nn::Batch& batch) {
  TEMPERA_CHECK(takes(batch),
                "a graph has no mask, and a batch with documents or padding is given");
  prefetch_.start({batch.tokens, batch.targets});
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
}

void GraphStep::start(double rate) {
  const auto next = prefetch_.take();
  if (!graph_ || batch_.tokens.sizes() != next[0].sizes()) {
    batch_.tokens = next[0].clone();
    batch_.targets = next[1].clone();
    record();
  } else {
    batch_.tokens.copy_(next[0]);
    batch_.targets.copy_(next[1]);
  }
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
