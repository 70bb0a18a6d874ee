#include "tempera/nn/block.h"

#include <torch/torch.h>

namespace tempera::nn {

Block::Block(const ModelConfig& config, std::shared_ptr<Method> method)
    : placement_(config.norm_placement),
      dropout_(config.dropout_residual),
      layer_(method->shape().layer) {
  const auto norm = [&] {
    return std::make_shared<Norm>(config.norm, config.width, config.norm_eps);
  };
  const AttentionOptions options{.width = config.width,
                                 .bias = config.attention_bias,
                                 .qk_norm = config.qk_norm,
                                 .norm_eps = config.norm_eps,
                                 .dropout = config.dropout_attention,
                                 .window = config.attention_window()};
  attention_norm_ = register_module("attention_norm", norm());
  attention_ =
      register_module("attention", std::make_shared<Attention>(options, std::move(method)));
  mlp_norm_ = register_module("mlp_norm", norm());
  mlp_ = register_module("mlp", std::make_shared<Mlp>(config));
}

torch::Tensor Block::dropped(const torch::Tensor& x, const Pass& pass, DropoutSite site) const {
  return pass.dropout_seed
             ? seeded_dropout(x, dropout_, dropout_seed(*pass.dropout_seed, layer_, site))
             : x;
}

torch::Tensor Block::forward(const torch::Tensor& x, const Pass& pass, LayerCache* cache) {
  const auto attend = [&](const torch::Tensor& rows) {
    return dropped(attention_->forward(rows, pass, cache), pass, DropoutSite::kAttentionOutput);
  };
  const auto feed = [&](const torch::Tensor& rows) {
    return dropped(mlp_->forward(rows), pass, DropoutSite::kMlpOutput);
  };
  if (placement_ == NormPlacement::kPre) {
    const auto middle = x + attend(attention_norm_->forward(x));
    return middle + feed(mlp_norm_->forward(middle));
  }
  const auto middle = attention_norm_->forward(x + attend(x));
  return mlp_norm_->forward(middle + feed(middle));
}

}  // namespace tempera::nn
