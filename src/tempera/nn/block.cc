#include "tempera/nn/block.h"

#include "tempera/ops/torch.h"

namespace tempera::nn {

Block::Block(const ModelConfig& config, std::shared_ptr<Method> method)
    : placement_(config.norm_placement),
      parallel_(config.parallel_residual),
      scale_(config.residual_scale),
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
                                 .window = config.attention_window(layer_),
                                 .scale = config.attention_scale,
                                 .cap = config.attention_cap,
                                 .lora = config.lora};
  attention_norm_ = register_module("attention_norm", norm());
  attention_ =
      register_module("attention", std::make_shared<Attention>(options, std::move(method)));
  mlp_norm_ = register_module("mlp_norm", norm());
  mlp_ = register_module("mlp", std::make_shared<Mlp>(config));
  if (placement_ != NormPlacement::kBoth) return;
  attention_output_norm_ = register_module("attention_output_norm", norm());
  mlp_output_norm_ = register_module("mlp_output_norm", norm());
}

torch::Tensor Block::dropped(const torch::Tensor& x, const Pass& pass, DropoutSite site) const {
  return pass.dropout_seed
             ? seeded_dropout(x, dropout_, dropout_seed(*pass.dropout_seed, layer_, site))
             : x;
}

torch::Tensor Block::forward(const torch::Tensor& x, const Pass& pass, LayerCache* cache) {
  const auto scaled = [&](const torch::Tensor& rows) { return scale_ == 1 ? rows : rows * scale_; };
  const auto attend = [&](const torch::Tensor& rows) {
    return dropped(attention_->forward(rows, pass, cache), pass, DropoutSite::kAttentionOutput);
  };
  const auto feed = [&](const torch::Tensor& rows) {
    return dropped(mlp_->forward(rows), pass, DropoutSite::kMlpOutput);
  };
  switch (placement_) {
    case NormPlacement::kPre: {
      const auto middle = x + scaled(attend(attention_norm_->forward(x)));
      return middle + scaled(feed(mlp_norm_->forward(parallel_ ? x : middle)));
    }
    case NormPlacement::kPost: {
      const auto middle = attention_norm_->forward(x + scaled(attend(x)));
      return mlp_norm_->forward(middle + scaled(feed(middle)));
    }
    case NormPlacement::kOutput: {
      const auto middle = x + scaled(attention_norm_->forward(attend(x)));
      return middle + scaled(mlp_norm_->forward(feed(middle)));
    }
    case NormPlacement::kBoth: {
      const auto added = attention_output_norm_->forward(attend(attention_norm_->forward(x)));
      const auto middle = x + scaled(added);
      return middle + scaled(mlp_output_norm_->forward(feed(mlp_norm_->forward(middle))));
    }
  }
  TORCH_INTERNAL_ASSERT(false, "a placement without a case");
}

}  // namespace tempera::nn
