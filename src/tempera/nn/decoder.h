#pragma once

#include <memory>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/nn/stack.h"

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
  PagedCache make_paged_cache(int64_t blocks, int64_t block_size) override;
  torch::Tensor extend_paged(const PagedRows& rows, PagedCache& cache) override;
  void set_context(int64_t context, const RopeConfig& rope) override;
  std::vector<Method*> methods() override { return stack_->methods(); }

 private:
  std::shared_ptr<Embedding> embedding_;
  std::unique_ptr<Stack> stack_;
  std::shared_ptr<Linear> head_;  // untied only
};

}  // namespace tempera::nn
