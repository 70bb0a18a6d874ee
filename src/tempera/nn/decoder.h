#pragma once

#include <memory>
#include <vector>

#include "tempera/nn/block.h"
#include "tempera/nn/model.h"
#include "tempera/nn/positions.h"

namespace tempera::nn {

// A causal language model: token table, blocks, output matrix.
class Decoder final : public Model {
 public:
  explicit Decoder(const ModelConfig& config);

  torch::Tensor hidden(const Batch& batch, const LayerObserver& observer) override;
  const torch::Tensor& output_weight() const override;
  std::vector<LayerInspection> inspect(const Batch& batch, const torch::Tensor& rows,
                                       const torch::Tensor& keys) override;
  ModelCache make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start) override;
  torch::Tensor extend(const torch::Tensor& tokens, ModelCache& cache) override;
  void set_context(int64_t context, double rope_base) override;
  std::vector<Method*> methods() override;

 private:
  Pass make_pass(const Batch& batch);
  Pass make_pass(const torch::Tensor& tokens, const ModelCache& cache);
  // before: (B, 1) the token in front of the first one; undefined: none.
  torch::Tensor embed(const torch::Tensor& tokens, const torch::Tensor& before, const Pass& pass);
  torch::Tensor shifted(const torch::Tensor& x, const torch::Tensor& before, const Pass& pass);
  torch::Tensor through_blocks(torch::Tensor x, const Pass& pass, const LayerObserver& observer);
  void check_length(int64_t length) const;

  std::shared_ptr<Embedding> embedding_;
  std::shared_ptr<Embedding> positions_;         // position = learned
  std::shared_ptr<RelativeBias> relative_bias_;  // position = t5
  torch::Tensor shift_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Norm> norm_;    // none after post-norm blocks, which end with one
  std::shared_ptr<Linear> head_;  // untied only
  RotaryTable rotary_;
};

}  // namespace tempera::nn
