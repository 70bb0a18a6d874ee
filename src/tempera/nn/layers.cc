#include "tempera/nn/layers.h"

#include "tempera/base/error.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// Of a text, that go through an MLP at once where no gradients are wanted.
constexpr int64_t kMlpRows = 8192;

const torch::Tensor& checked(const torch::Tensor& weight, const torch::Tensor& own) {
  TEMPERA_CHECK(weight.sizes() == own.sizes(), "a weight ", weight.sizes(), " given, ", own.sizes(),
                " expected");
  return weight;
}

}  // namespace

Linear::Linear(int64_t inputs, int64_t outputs, bool bias, const LoraConfig& lora)
    : lora_scale_(lora.scale()) {
  weight_ = register_parameter("weight", torch::empty({outputs, inputs}));
  if (bias) bias_ = register_parameter("bias", torch::empty({outputs}));
  if (lora.rank == 0) return;
  lora_a_ = register_parameter("lora_a", torch::empty({lora.rank, inputs}));
  lora_b_ = register_parameter("lora_b", torch::empty({outputs, lora.rank}));
}

void Linear::set_weight(const torch::Tensor& weight) {
  weight_ = parameters_["weight"] = checked(weight, weight_);
}

torch::Tensor Linear::forward(const torch::Tensor& x) const {
  const auto y = ops::linear(x, weight_, bias_);
  if (!lora_a_.defined()) return y;
  return y + ops::linear(ops::linear(x, lora_a_) * lora_scale_, lora_b_);
}

Embedding::Embedding(int64_t rows, int64_t width)
    : weight_(register_parameter("weight", torch::empty({rows, width}))) {}

void Embedding::set_weight(const torch::Tensor& weight) {
  weight_ = parameters_["weight"] = checked(weight, weight_);
}

torch::Tensor Embedding::forward(const torch::Tensor& index, torch::ScalarType type) const {
  return ops::embedding(weight_, index,
                        weight_.scalar_type() == torch::kFloat32 ? type : weight_.scalar_type());
}

Norm::Norm(NormKind kind, int64_t width, double eps) : kind_(kind), eps_(eps) {
  weight_ = register_parameter("weight", torch::empty({width}));
  if (kind == NormKind::kLayer) bias_ = register_parameter("bias", torch::empty({width}));
}

torch::Tensor Norm::forward(const torch::Tensor& x) const {
  return ops::norm(x, weight_, bias_, eps_, /*centred=*/kind_ == NormKind::kLayer)
      .to(x.scalar_type());
}

torch::Tensor activate(Activation activation, const torch::Tensor& rows) {
  switch (activation) {
    case Activation::kSwiglu:
      return ops::swiglu(rows);
    case Activation::kGegluTanh: {
      const auto halves = rows.chunk(2, -1);
      return ops::gelu(halves[0], /*by_tanh=*/true) * halves[1];
    }
    case Activation::kGelu:
      return ops::gelu(rows, /*by_tanh=*/false);
    case Activation::kGeluTanh:
      return ops::gelu(rows, /*by_tanh=*/true);
    case Activation::kRelu:
      return torch::relu(rows);
  }
  TORCH_INTERNAL_ASSERT(false, "an activation without a case");
}

torch::Tensor Norm::forward(Residual& sum) const {
  if (!sum.added.defined()) return forward(sum.x);
  const auto [h, y] =
      ops::add_norm(sum.x, sum.added, weight_, bias_, eps_, kind_ == NormKind::kLayer);
  sum = {h};
  return y.to(h.scalar_type());
}

Mlp::Mlp(const ModelConfig& config) : activation_(config.activation) {
  const int64_t size = config.size_of_mlp();
  const int64_t columns = is_gated(activation_) ? 2 * size : size;
  in_ = register_module(
      "in", std::make_shared<Linear>(config.width, columns, config.mlp_bias, config.lora));
  out_ = register_module(
      "out", std::make_shared<Linear>(size, config.width, config.mlp_bias, config.lora));
}

torch::Tensor Mlp::forward(const torch::Tensor& x) const {
  const auto apply = [&](const torch::Tensor& rows) {
    return out_->forward(activate(activation_, in_->forward(rows)));
  };
  if (torch::GradMode::is_enabled() || x.size(-2) <= kMlpRows) return apply(x);
  // A long text's wide rows are never all there at once.
  std::vector<torch::Tensor> parts;
  for (const auto& rows : x.split(kMlpRows, -2)) parts.push_back(apply(rows));
  return torch::cat(parts, -2);
}

}  // namespace tempera::nn
