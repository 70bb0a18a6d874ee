#include "tempera/nn/functional.h"

#include <torch/torch.h>

namespace tempera::nn {

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
  const auto type = x.scalar_type();
  // A mean of squares in bfloat16 would lose most of its digits.
  const auto wide = type == torch::kBFloat16 ? x.to(torch::kFloat32) : x;
  auto normed = wide * (wide.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
  if (weight.defined()) normed = normed * weight;
  return normed.to(type);
}

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias, double eps) {
  const auto type = x.scalar_type();
  return torch::layer_norm(x, {x.size(-1)}, weight.to(type), bias.to(type), eps);
}

torch::Tensor swiglu(const torch::Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, -1);
  return torch::silu(parts[0]) * parts[1];
}

torch::Tensor rotary(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin) {
  const int64_t half = cos.size(-1);
  const auto shaped = [&](const torch::Tensor& table) {
    const auto typed = table.to(x.scalar_type());
    return typed.dim() == 3 ? typed.unsqueeze(1) : typed;
  };
  const auto c = shaped(cos);
  const auto s = shaped(sin);
  const auto parts = x.split_with_sizes({half, half, x.size(-1) - 2 * half}, -1);
  return torch::cat({parts[0] * c - parts[1] * s, parts[1] * c + parts[0] * s, parts[2]}, -1);
}

torch::Tensor cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                            const torch::Tensor& targets, double label_smoothing) {
  auto rows = hidden;
  auto wanted = targets;
  if (hidden.device().is_cpu()) {
    // Tasks that ask a few questions of a long row need few rows of logits.
    const auto scored = targets.ne(-100).nonzero().squeeze(1);
    if (scored.size(0) < targets.size(0)) {
      rows = hidden.index_select(0, scored);
      wanted = targets.index_select(0, scored);
    }
  }
  auto logits = torch::linear(rows, weight.to(rows.scalar_type()));
  if (logits.scalar_type() == torch::kBFloat16) logits = logits.to(torch::kFloat32);
  const auto options = torch::nn::functional::CrossEntropyFuncOptions()
                           .ignore_index(-100)
                           .reduction(torch::kSum)
                           .label_smoothing(label_smoothing);
  const auto sum = torch::nn::functional::cross_entropy(logits, wanted, options);
  return sum / wanted.ne(-100).sum().clamp_min(1);
}

uint64_t mix_seed(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ULL;  // splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint64_t dropout_seed(uint64_t pass_seed, int64_t layer, DropoutSite site) {
  return mix_seed(pass_seed, static_cast<uint64_t>(layer) * 4 + static_cast<uint64_t>(site));
}

torch::Generator seeded_generator(uint64_t seed, const torch::Device& device) {
  auto generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

torch::Tensor dropout(const torch::Tensor& x, double share, uint64_t seed) {
  if (share == 0) return x;
  torch::Tensor mask;
  {
    const torch::NoGradGuard no_grad;
    mask = torch::empty_like(x, at::MemoryFormat::Contiguous)
               .bernoulli_(1 - share, seeded_generator(seed, x.device()))
               .div_(1 - share);
  }
  return x * mask;
}

}  // namespace tempera::nn
