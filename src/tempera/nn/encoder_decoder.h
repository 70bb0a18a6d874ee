#pragma once

#include <memory>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/nn/stack.h"

namespace tempera::nn {

// Writes one sequence (Batch::tokens) while it reads another (Batch::source). Both halves share the
// token table. The names of their parts begin with encoder. and decoder.
class EncoderDecoder final : public Model {
 public:
  explicit EncoderDecoder(const ModelConfig& config);

  // Of the target rows; the observer sees the layers of the decoder half.
  torch::Tensor hidden(const Batch& batch, const LayerObserver& observer) override;
  const torch::Tensor& output_weight() const override;
  // One for each of methods(); weights of the cross-attentions: rows of the target, keys of the
  // source.
  std::vector<LayerInspection> inspect(const Batch& batch, const torch::Tensor& rows,
                                       const torch::Tensor& keys) override;
  ModelCache read_source(const Batch& batch, int64_t capacity) override;
  torch::Tensor extend(const torch::Tensor& tokens, ModelCache& cache) override;
  void set_context(int64_t context, const RopeConfig& rope) override;
  // Of the encoder's layers, then of the decoder's, there self-attention before cross-attention.
  std::vector<Method*> methods() override;

  // What the decoder half reads: hidden states of Batch::source, with its mask.
  Source encode(const Batch& batch);

 private:
  std::shared_ptr<Embedding> embedding_;
  std::unique_ptr<Stack> encoder_, decoder_;
  std::shared_ptr<Linear> head_;  // untied only
};

}  // namespace tempera::nn
