#include "tempera/models/fold.h"

#include <algorithm>
#include <string>

#include "tempera/base/error.h"
#include "tempera/nn/attention.h"
#include "tempera/nn/positions.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/method.h"

namespace tempera::models {
namespace {

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
    folded_.config.cross_temperature = nn::ModelConfig().cross_temperature;
    folded_.config.lora = {};
    folded_.config.rope = model.settled_rope();
    for (const auto& item : model.named_modules())
      if (auto* attention = item.value()->as<nn::Attention>())
        fold_layer(item.key() + ".", attention->method());
  }

  FoldedModel take() { return std::move(folded_); }

 private:
  // A projection's rows of an operand: the first of them.
  struct Place {
    std::string projection;
    int64_t first;
  };

  // name: of the attention, with its dot.
  void fold_layer(const std::string& name, Method& method) {
    const HeadScales scales = constant_of(method);
    const int64_t size = folded_.config.size_of_head();
    const int64_t q = folded_.config.heads * size;
    const int64_t kv = folded_.config.kv_head_count() * size;
    const bool cross = method.shape().kind == AttentionKind::kCross;
    const std::string joint = name + (cross ? "kv." : "qkv.");
    const int64_t before = cross ? 0 : q;  // rows of q in front of those of k
    if (scales.q.defined())
      fold_logits(scales.q, name + "q_norm", {cross ? name + "q." : joint, 0});
    if (scales.k.defined()) fold_logits(scales.k, name + "k_norm", {joint, before});
    if (scales.v.defined()) multiply_projection(scales.v, {joint, before + kv});
  }

  void fold_logits(const torch::Tensor& scale, const std::string& gain, const Place& place) {
    switch (folded_.config.qk_norm) {
      case nn::QkNorm::kNone:
        return multiply_projection(scale, place);
      case nn::QkNorm::kWide:
        return multiply(gain, rows_of(scale), 0);
      case nn::QkNorm::kGain: {
        const auto value = shared_value(scale);
        TEMPERA_CHECK(value, gain, ": the heads have different temperatures and share ",
                      "the gain of their QK-norm, so no weights can take them up; use one "
                      "temperature a layer, or export without --fold");
        folded_.state[gain] = folded_.state.at(gain) * *value;
        return;
      }
      case nn::QkNorm::kPlain:
        throw Error(concat(place.projection, ": the model has a QK-norm without a gain, so no ",
                           "weights can take the temperature up; export without --fold"));
    }
  }

  // A number a head as one a row of the projection, (rows).
  torch::Tensor rows_of(const torch::Tensor& scale) const {
    return scale.repeat_interleave(folded_.config.size_of_head());
  }

  void multiply_projection(const torch::Tensor& scale, const Place& place) {
    multiply(place.projection + "weight", rows_of(scale).unsqueeze(1), place.first);
    const std::string bias = place.projection + "bias";
    if (folded_.state.contains(bias)) multiply(bias, rows_of(scale), place.first);
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
  if (model.config().lora.rank > 0 || model.config().rope.learned) return true;
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

void fold_rotary_amplitude(FoldedModel& model) {
  const double amplitude = nn::rotary_amplitude(model.config.rope);
  if (model.config.rope.scaling != nn::RopeScaling::kFactors || amplitude == 1) return;
  TEMPERA_CHECK(model.config.qk_norm != nn::QkNorm::kPlain,
                "the model has a QK-norm without a gain, so no weights can take up the ", amplitude,
                " that its positions multiply queries and keys by; export a Hugging Face folder");
  // Both sides are multiplied; that is the square on one of them.
  auto head = torch::ones({model.config.size_of_head()});
  head.narrow(0, 0, model.config.rotary_size()).fill_(amplitude * amplitude);
  const auto heads = head.repeat({model.config.heads});
  const bool by_gain = model.config.qk_norm != nn::QkNorm::kNone;
  const bool shared = model.config.qk_norm == nn::QkNorm::kGain;
  for (auto& [name, tensor] : model.state) {
    if (by_gain && name.ends_with("attention.q_norm"))
      tensor = tensor * (shared ? head : heads).to(tensor.scalar_type());
    const bool matrix = name.ends_with("attention.qkv.weight");
    if (by_gain || (!matrix && !name.ends_with("attention.qkv.bias"))) continue;
    tensor = tensor.clone();
    auto rows = tensor.narrow(0, 0, heads.size(0));
    rows.copy_(rows.to(torch::kFloat32) * (matrix ? heads.unsqueeze(1) : heads));
  }
  model.config.rope.attention_factor = 1;
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
