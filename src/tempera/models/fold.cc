#include "tempera/models/fold.h"

#include <algorithm>
#include <string>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/method.h"

namespace tempera::models {
namespace {

std::string layer_name(int64_t layer, const char* what) {
  return "layers." + std::to_string(layer) + ".attention." + what;
}

HeadScales constant_of(Method& method) {
  const auto constant = method.constant();
  if (constant) return *constant;
  std::string name;
  for (const auto& spec : method.specs()) name += (name.empty() ? "" : ",") + spec.name;
  throw Error(concat("layer ", method.shape().layer, ": the temperature '", name,
                     "' depends on the token or its position, so no weights can take it up; export "
                     "without --fold to keep it"));
}

// One number, if all heads have the same.
std::optional<double> shared_value(const torch::Tensor& scale) {
  const auto first = scale.flatten()[0];
  if (!torch::equal(scale, first.expand_as(scale))) return std::nullopt;
  return first.item<double>();
}

class Folder {
 public:
  explicit Folder(nn::Model& model) : folded_{model.config(), merged_weights(model)} {
    folded_.config.temperature = {};
    folded_.config.lora = {};
    const auto methods = model.methods();
    for (size_t layer = 0; layer < methods.size(); ++layer)
      fold_layer(static_cast<int64_t>(layer), constant_of(*methods[layer]));
  }

  FoldedModel take() { return std::move(folded_); }

 private:
  void fold_layer(int64_t layer, const HeadScales& scales) {
    const int64_t size = folded_.config.size_of_head();
    const int64_t q = folded_.config.heads * size;
    const int64_t kv = folded_.config.kv_head_count() * size;
    if (scales.q.defined()) fold_logits(layer, scales.q, "q_norm", 0);
    if (scales.k.defined()) fold_logits(layer, scales.k, "k_norm", q);
    if (scales.v.defined()) multiply_projection(layer, scales.v, q + kv);
  }

  // first: the row of the joint projection where the operand begins.
  void fold_logits(int64_t layer, const torch::Tensor& scale, const char* gain, int64_t first) {
    const std::string name = layer_name(layer, gain);
    switch (folded_.config.qk_norm) {
      case nn::QkNorm::kNone:
        return multiply_projection(layer, scale, first);
      case nn::QkNorm::kWide:
        return multiply(name, rows_of(scale), 0);
      case nn::QkNorm::kGain: {
        const auto value = shared_value(scale);
        TEMPERA_CHECK(value, "layer ", layer, ": the heads have different temperatures and share ",
                      "the gain of their QK-norm, so no weights can take them up; use one "
                      "temperature a layer, or export without --fold");
        folded_.state[name] = folded_.state.at(name) * *value;
        return;
      }
      case nn::QkNorm::kPlain:
        throw Error(concat("layer ", layer, ": the model has a QK-norm without a gain, so no ",
                           "weights can take the temperature up; export without --fold"));
    }
  }

  // A number a head as one a row of the projection, (rows).
  torch::Tensor rows_of(const torch::Tensor& scale) const {
    return scale.repeat_interleave(folded_.config.size_of_head());
  }

  void multiply_projection(int64_t layer, const torch::Tensor& scale, int64_t first) {
    multiply(layer_name(layer, "qkv.weight"), rows_of(scale).unsqueeze(1), first);
    const std::string bias = layer_name(layer, "qkv.bias");
    if (folded_.state.contains(bias)) multiply(bias, rows_of(scale), first);
  }

  void multiply(const std::string& name, const torch::Tensor& factors, int64_t first) {
    auto& tensor = folded_.state.at(name);
    auto changed = tensor.clone();
    auto part = changed.narrow(0, first, factors.size(0));
    part.copy_(part.to(torch::kFloat32) * factors.to(torch::kFloat32));
    tensor = changed;
  }

  FoldedModel folded_;
};

}  // namespace

bool needs_fold(nn::Model& model) {
  if (model.config().lora.rank > 0) return true;
  return std::ranges::any_of(model.methods(), [](const Method* method) {
    return method->specs().size() != 1 || method->specs()[0].name != "softmax";
  });
}

nn::StateMap merged_weights(const nn::Model& model) {
  const torch::NoGradGuard no_grad;
  const nn::StateMap all = model.state();
  nn::StateMap merged;
  for (const auto& [name, tensor] : all)
    if (!nn::is_added(name)) merged[name] = tensor;
  for (const auto& [name, a] : all) {
    if (!name.ends_with("lora_a")) continue;
    const std::string module = name.substr(0, name.size() - std::string("lora_a").size());
    const auto change = all.at(module + "lora_b").matmul(a) * model.config().lora.scale();
    auto& weight = merged.at(module + "weight");
    weight = (weight.to(torch::kFloat32) + change).to(weight.scalar_type());
  }
  return merged;
}

FoldedModel fold(nn::Model& model) {
  const torch::NoGradGuard no_grad;
  return Folder(model).take();
}

std::optional<double> common_logit_factor(nn::Model& model) {
  const torch::NoGradGuard no_grad;
  std::optional<double> common;
  for (Method* method : model.methods()) {
    const auto scales = method->constant();
    if (!scales || scales->v.defined()) return std::nullopt;
    double factor = 1;
    for (const auto& scale : {scales->q, scales->k}) {
      if (!scale.defined()) continue;
      const auto value = shared_value(scale);
      if (!value) return std::nullopt;
      factor *= *value;
    }
    if (common && *common != factor) return std::nullopt;
    common = factor;
  }
  return common;
}

}  // namespace tempera::models
