#include "tempera/nn/block.h"

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {

Block::Block(const ModelConfig& config, std::shared_ptr<Method> method,
             std::shared_ptr<Method> cross)
    : placement_(config.norm_placement),
      parallel_(config.parallel_residual),
      scale_(config.residual_scale),
      dropout_(config.dropout_residual),
      layer_(method->shape().layer) {
  AttentionOptions options{.width = config.width,
                           .bias = config.attention_bias,
                           .qk_norm = config.qk_norm,
                           .norm_eps = config.norm_eps,
                           .dropout = config.dropout_attention,
                           .window = config.attention_window(layer_),
                           .scale = config.attention_scale,
                           .cap = config.attention_cap,
                           .lora = config.lora};
  attention_part_ = make_part(config, "attention");
  attention_ =
      register_module("attention", std::make_shared<Attention>(options, std::move(method)));
  if (cross) {
    options.window = {};  // the positions of two sequences have no distance
    cross_part_ = make_part(config, "cross");
    cross_attention_ =
        register_module("cross_attention", std::make_shared<Attention>(options, std::move(cross)));
  }
  mlp_part_ = make_part(config, "mlp");
  mlp_ = register_module("mlp", std::make_shared<Mlp>(config));
}

Block::Part Block::make_part(const ModelConfig& config, const std::string& name) {
  const auto norm = [&](const char* end) {
    return register_module(name + end,
                           std::make_shared<Norm>(config.norm, config.width, config.norm_eps));
  };
  Part part{norm("_norm"), nullptr};
  if (placement_ == NormPlacement::kBoth) part.output_norm = norm("_output_norm");
  return part;
}

torch::Tensor Block::dropped(const torch::Tensor& x, const Pass& pass, DropoutSite site) const {
  return pass.dropout_seed
             ? seeded_dropout(x, dropout_, dropout_seed(*pass.dropout_seed, layer_, site))
             : x;
}

void Block::add(Residual& sum, const Part& part,
                const std::function<torch::Tensor(const torch::Tensor&)>& f) const {
  switch (placement_) {
    case NormPlacement::kPre:
      sum.added = scaled(f(part.norm->forward(sum)));
      return;
    case NormPlacement::kPost:
      sum.x = part.norm->forward(sum.x + scaled(f(sum.x)));
      return;
    case NormPlacement::kOutput:
      sum.x = sum.x + scaled(part.norm->forward(f(sum.x)));
      return;
    case NormPlacement::kBoth:
      sum.x = sum.x + scaled(part.output_norm->forward(f(part.norm->forward(sum.x))));
      return;
  }
  TORCH_INTERNAL_ASSERT(false, "a placement without a case");
}

torch::Tensor Block::cross(const torch::Tensor& x, const Pass& pass, const BlockCache* cache) {
  if (cache) return cross_attention_->forward_cached(x, pass, cache->source, *cache->cross);
  TEMPERA_CHECK(pass.source, "a block with a cross-attention needs a source");
  return cross_attention_->forward(x, pass, *pass.source);
}

Residual Block::forward(Residual sum, const Pass& pass, const BlockCache* cache) {
  const auto x = parallel_ ? sum.whole() : torch::Tensor();
  if (parallel_) sum = {x};
  add(sum, attention_part_, [&](const torch::Tensor& rows) {
    return dropped(attention_->forward(rows, pass, cache ? cache->self : nullptr), pass,
                   DropoutSite::kAttentionOutput);
  });
  if (cross_attention_)
    add(sum, cross_part_, [&](const torch::Tensor& rows) {
      return dropped(cross(rows, pass, cache), pass, DropoutSite::kCrossOutput);
    });
  const auto feed = [&](const torch::Tensor& rows) {
    return dropped(mlp_->forward(rows), pass, DropoutSite::kMlpOutput);
  };
  if (parallel_) return {sum.whole() + scaled(feed(mlp_part_.norm->forward(x)))};
  add(sum, mlp_part_, feed);
  return sum;
}

}  // namespace tempera::nn
