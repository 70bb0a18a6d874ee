#include "tempera/nn/decoder.h"

#include "tempera/ops/torch.h"

namespace tempera::nn {

Decoder::Decoder(const ModelConfig& config) : Model(config) {
  embedding_ =
      register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.width));
  stack_ = std::make_unique<Stack>(*this, config, StackKind::kCausal, embedding_);
  if (!config.tied_embeddings)
    head_ = register_module(
        "head", std::make_shared<Linear>(config.width, config.output_count(), /*bias=*/false));
}

const torch::Tensor& Decoder::output_weight() const {
  return head_ ? head_->weight() : embedding_->weight();
}

torch::Tensor Decoder::hidden(const Batch& batch, const LayerObserver& observer) {
  return stack_->forward(target_side(batch), pass_options(batch, observer)).x;
}

std::vector<LayerInspection> Decoder::inspect(const Batch& batch, const torch::Tensor& rows,
                                              const torch::Tensor& keys) {
  const torch::NoGradGuard no_grad;
  const auto options = inspecting(rows, keys);
  stack_->forward(target_side(batch), options);
  return options.inspection->layers;
}

ModelCache Decoder::make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start) {
  return stack_->make_cache(batch, capacity, start, cache_type());
}

torch::Tensor Decoder::extend(const torch::Tensor& tokens, ModelCache& cache) {
  check_inference();
  return stack_->extend(tokens, cache, compute_type());
}

PagedCache Decoder::make_paged_cache(int64_t blocks, int64_t block_size) {
  return stack_->make_paged_cache(blocks, block_size, cache_type());
}

torch::Tensor Decoder::extend_paged(const PagedRows& rows, PagedCache& cache) {
  check_inference();
  return stack_->extend(rows, cache, compute_type());
}

void Decoder::set_context(int64_t context, const RopeConfig& rope) {
  Model::set_context(context, rope);
  stack_->set_context(config_.rope, context);
}

}  // namespace tempera::nn
