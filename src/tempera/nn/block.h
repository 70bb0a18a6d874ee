#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "tempera/nn/attention.h"
#include "tempera/nn/dropout.h"
#include "tempera/nn/layers.h"

namespace tempera::nn {

// Attention and MLP, each with its norm and residual sum.
class Block final : public torch::nn::Module {
 public:
  Block(const ModelConfig& config, std::shared_ptr<Method> method);

  torch::Tensor forward(const torch::Tensor& x, const Pass& pass, LayerCache* cache = nullptr);
  Attention& attention() { return *attention_; }

 private:
  torch::Tensor dropped(const torch::Tensor& x, const Pass& pass, DropoutSite site) const;

  NormPlacement placement_;
  bool parallel_;
  double scale_;  // of what each part adds
  double dropout_;
  int64_t layer_;
  std::shared_ptr<Norm> attention_norm_, mlp_norm_;
  std::shared_ptr<Norm> attention_output_norm_, mlp_output_norm_;  // norms on both sides
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace tempera::nn
