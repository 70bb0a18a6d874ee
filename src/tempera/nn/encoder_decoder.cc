#include "tempera/nn/encoder_decoder.h"

#include "tempera/nn/dropout.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {

EncoderDecoder::EncoderDecoder(const ModelConfig& config) : Model(config) {
  embedding_ =
      register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.width));
  const auto half = [&](const char* name, StackKind kind) {
    const auto owner = register_module(name, std::make_shared<torch::nn::Module>(name));
    return std::make_unique<Stack>(*owner, config, kind, embedding_);
  };
  encoder_ = half("encoder", StackKind::kBidirectional);
  decoder_ = half("decoder", StackKind::kTarget);
  if (!config.tied_embeddings)
    head_ = register_module(
        "head", std::make_shared<Linear>(config.width, config.output_count(), /*bias=*/false));
}

const torch::Tensor& EncoderDecoder::output_weight() const {
  return head_ ? head_->weight() : embedding_->weight();
}

Source EncoderDecoder::encode(const Batch& batch) {
  auto options = pass_options(batch, {});
  // Other random numbers than those of the decoder's layers.
  if (options.dropout_seed) options.dropout_seed = mix_seed(*options.dropout_seed, 0);
  return encoder_->forward(source_side(batch), options);
}

torch::Tensor EncoderDecoder::hidden(const Batch& batch, const LayerObserver& observer) {
  const auto source = std::make_shared<const Source>(encode(batch));
  return decoder_->forward(target_side(batch), pass_options(batch, observer), source).x;
}

std::vector<LayerInspection> EncoderDecoder::inspect(const Batch& batch, const torch::Tensor& rows,
                                                     const torch::Tensor& keys) {
  const torch::NoGradGuard no_grad;
  const auto options = inspecting(rows, keys);
  options.inspection->cross = true;
  const auto source =
      std::make_shared<const Source>(encoder_->forward(source_side(batch), options));
  decoder_->forward(target_side(batch), options, source);
  return options.inspection->layers;
}

ModelCache EncoderDecoder::read_source(const Batch& batch, int64_t capacity) {
  check_inference();
  const torch::NoGradGuard no_grad;
  return decoder_->make_cache(encode(batch), capacity, cache_type());
}

torch::Tensor EncoderDecoder::extend(const torch::Tensor& tokens, ModelCache& cache) {
  check_inference();
  return decoder_->extend(tokens, cache, compute_type());
}

void EncoderDecoder::set_context(int64_t context, const RopeConfig& rope) {
  Model::set_context(context, rope);
  encoder_->set_context(config_.rope, context);
  decoder_->set_context(config_.rope, context);
}

std::vector<Method*> EncoderDecoder::methods() {
  auto found = encoder_->methods();
  for (Method* method : decoder_->methods()) found.push_back(method);
  return found;
}

}  // namespace tempera::nn
