#include "tempera/nn/encoder.h"

#include "tempera/base/error.h"
#include "tempera/nn/pooling.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {

Encoder::Encoder(const ModelConfig& config) : Model(config) {
  embedding_ =
      register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.width));
  stack_ = std::make_unique<Stack>(*this, config, StackKind::kBidirectional, embedding_);
  const auto square = [&] {
    return std::make_shared<Linear>(config.width, config.width, /*bias=*/true);
  };
  if (config.pooler) pooler_ = register_module("pooler", square());
  if (config.head == HeadKind::kNone) return;
  if (config.head_transform) {
    transform_ = register_module("head_transform", square());
    transform_norm_ = register_module(
        "head_norm", std::make_shared<Norm>(config.norm, config.width, config.norm_eps));
  }
  const auto scores = [&](bool bias) {
    return std::make_shared<Linear>(config.width, config.output_count(), bias);
  };
  if (config.head == HeadKind::kSequence)
    head_ = register_module("classifier", scores(/*bias=*/true));
  else if (!config.tied_embeddings)
    head_ = register_module("head", scores(/*bias=*/false));
  if (config.head_transform)
    output_bias_ = register_parameter("head_bias", torch::empty({config.output_count()}));
}

torch::Tensor Encoder::output_bias() const {
  return config_.head == HeadKind::kSequence ? head_->bias() : output_bias_;
}

const torch::Tensor& Encoder::output_weight() const {
  TEMPERA_CHECK(config_.head != HeadKind::kNone,
                "the model has no head that scores anything: it gives hidden states alone");
  return head_ ? head_->weight() : embedding_->weight();
}

torch::Tensor Encoder::head_rows(const torch::Tensor& rows) const {
  return transform_
             ? transform_norm_->forward(activate(config_.activation, transform_->forward(rows)))
             : rows;
}

torch::Tensor Encoder::hidden(const Batch& batch, const LayerObserver& observer) {
  return stack_->forward(target_side(batch), pass_options(batch, observer)).x;
}

torch::Tensor Encoder::pooled(const torch::Tensor& hidden, const Batch& batch) const {
  if (!pooler_) return pool(hidden, batch, Pooling::kMean).to(hidden.scalar_type());
  return pooler_->forward(pool(hidden, batch, Pooling::kFirst).to(hidden.scalar_type())).tanh();
}

torch::Tensor Encoder::scored_rows(const Batch& batch) {
  const auto rows = hidden(batch, {});
  return config_.head == HeadKind::kSequence ? pooled(rows, batch) : rows;
}

std::vector<LayerInspection> Encoder::inspect(const Batch& batch, const torch::Tensor& rows,
                                              const torch::Tensor& keys) {
  const torch::NoGradGuard no_grad;
  const auto options = inspecting(rows, keys);
  stack_->forward(target_side(batch), options);
  return options.inspection->layers;
}

void Encoder::set_context(int64_t context, const RopeConfig& rope) {
  Model::set_context(context, rope);
  stack_->set_context(config_.rope, context);
}

}  // namespace tempera::nn
