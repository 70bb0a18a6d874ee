#pragma once

#include <memory>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/nn/stack.h"

namespace tempera::nn {

// Every row sees the whole of its sequence. The head scores tokens (masked language modelling), or
// the sequence (classification), or there is none and the hidden states are what is wanted.
class Encoder final : public Model {
 public:
  explicit Encoder(const ModelConfig& config);

  torch::Tensor hidden(const Batch& batch, const LayerObserver& observer) override;
  torch::Tensor scored_rows(const Batch& batch) override;
  const torch::Tensor& output_weight() const override;
  torch::Tensor output_bias() const override;
  torch::Tensor head_rows(const torch::Tensor& rows) const override;
  std::vector<LayerInspection> inspect(const Batch& batch, const torch::Tensor& rows,
                                       const torch::Tensor& keys) override;
  void set_context(int64_t context, const RopeConfig& rope) override;
  std::vector<Method*> methods() override { return stack_->methods(); }

  // One row a sequence, (B, width): what the pooler makes of the first one; without a pooler the
  // mean of all.
  torch::Tensor pooled(const torch::Tensor& hidden, const Batch& batch) const;

 private:
  std::shared_ptr<Embedding> embedding_;
  std::unique_ptr<Stack> stack_;
  std::shared_ptr<Linear> pooler_;
  std::shared_ptr<Linear> transform_;  // of the rows that the head scores
  std::shared_ptr<Norm> transform_norm_;
  std::shared_ptr<Linear> head_;  // none: tied, or no head
  torch::Tensor output_bias_;     // beside a head_transform
};

}  // namespace tempera::nn
