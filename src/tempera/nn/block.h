#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "tempera/nn/attention.h"
#include "tempera/nn/dropout.h"
#include "tempera/nn/layers.h"

namespace tempera::nn {

// What a block keeps of earlier rows.
struct BlockCache {
  LayerCache* self = nullptr;
  LayerCache* cross = nullptr;
  SequenceMask source = {};  // which rows of the source are there
};

// Attention, where there is a source cross-attention, and MLP, each with its norm and residual sum.
class Block final : public torch::nn::Module {
 public:
  // cross: the method of the cross-attention; null: the block has none.
  Block(const ModelConfig& config, std::shared_ptr<Method> method,
        std::shared_ptr<Method> cross = nullptr);

  Residual forward(Residual sum, const Pass& pass, const BlockCache* cache = nullptr);
  Attention& attention() { return *attention_; }
  // Null: none.
  Attention* cross_attention() { return cross_attention_.get(); }

 private:
  // One part with its residual sum.
  struct Part {
    std::shared_ptr<Norm> norm;
    std::shared_ptr<Norm> output_norm;  // norms on both sides
  };
  Part make_part(const ModelConfig& config, const std::string& name);
  void add(Residual& sum, const Part& part,
           const std::function<torch::Tensor(const torch::Tensor&)>& f) const;
  torch::Tensor scaled(const torch::Tensor& x) const { return scale_ == 1 ? x : x * scale_; }
  torch::Tensor cross(const torch::Tensor& x, const Pass& pass, const BlockCache* cache);
  torch::Tensor dropped(const torch::Tensor& x, const Pass& pass, DropoutSite site) const;

  NormPlacement placement_;
  bool parallel_;
  double scale_;  // of what each part adds
  double dropout_;
  int64_t layer_;
  Part attention_part_, cross_part_, mlp_part_;
  std::shared_ptr<Attention> attention_, cross_attention_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace tempera::nn
