// The passes of fused.h and linear.h. They compute as the kernels do: in float, whatever the
// storage.
#include <ATen/ATen.h>

#include <cmath>

#include "tempera/ops/composed/composed.h"

namespace tempera::ops {

using at::Tensor;

Tensor Composed::norm(const Tensor& stored, const NormWeights& weights) const {
  const Tensor x = stored.to(scale_type(stored.scalar_type()));
  Tensor y = weights.centred ? x - x.mean(-1, /*keepdim=*/true) : x;
  y = y * y.square().mean(-1, /*keepdim=*/true).add(weights.epsilon).rsqrt();
  if (weights.gain.defined()) y = y * weights.gain;
  if (weights.bias.defined()) y = y + weights.bias;
  return y.to(stored.scalar_type());
}

NormedSum Composed::add_norm(const Tensor& x, const Tensor& residual,
                             const NormWeights& weights) const {
  const Tensor h = x + residual;
  return {h, norm(h, weights)};
}

Tensor Composed::swiglu(const Tensor& gate_up) const {
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

Tensor Composed::gelu(const Tensor& x, bool by_tanh) const {
  return at::gelu(x, by_tanh ? "tanh" : "none");
}

Tensor Composed::embedding(const Tensor& table, const Tensor& ids, at::ScalarType type) const {
  return at::embedding(table, ids).to(type);
}

Tensor Composed::rotary(const Tensor& stored, const Tensor& cos, const Tensor& sin,
                        const Tensor& positions) const {
  const Tensor x = stored.to(scale_type(stored.scalar_type()));
  const auto table = [&](const Tensor& t) {
    const Tensor rows =
        positions.defined() ? t.index({positions}).unsqueeze(1) : t.narrow(0, 0, x.size(2));
    return rows.to(x.scalar_type());
  };
  const int64_t pairs = cos.size(1);
  const Tensor c = table(cos), s = table(sin);
  const Tensor first = x.narrow(3, 0, pairs), second = x.narrow(3, pairs, pairs);
  return at::cat({first * c - second * s, first * s + second * c,
                  x.narrow(3, 2 * pairs, x.size(3) - 2 * pairs)},
                 3)
      .to(stored.scalar_type());
}

Tensor Composed::linear(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  const auto type = x.scalar_type();
  if (!bias.defined()) return at::linear(x, weight.to(type));
  return at::linear(x, weight.to(type), bias.to(type));
}

Tensor Composed::shares_factor(const Tensor& targets, const Tensor& shares) {
  const Tensor sum = shares.masked_fill(targets.lt(0), 0).sum();
  return at::where(sum > 0, sum.reciprocal(), at::ones_like(sum));
}

Tensor Composed::linear_cross_entropy(const Tensor& hidden, const Tensor& weight,
                                      const Tensor& targets, double label_smoothing,
                                      const Tensor& shares) const {
  const Tensor clean = targets.masked_fill(targets.lt(0), -100);
  const Tensor logits = hidden.mm(weight.t()).to(scale_type(hidden.scalar_type()));
  if (shares.defined()) {
    const Tensor losses =
        at::cross_entropy_loss(logits, clean, {}, at::Reduction::None, -100, label_smoothing);
    return (losses * shares).sum() * shares_factor(targets, shares);
  }
  const Tensor sum =
      at::cross_entropy_loss(logits, clean, {}, at::Reduction::Sum, -100, label_smoothing);
  return sum / targets.ge(0).sum().clamp_min(1);
}

void Composed::adamw(const AdamWState& state, const AdamWStep& step) const {
  const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1 - std::pow(step.beta2, static_cast<double>(step.step));
  const Tensor g = state.gradient * step.gradient_factor;
  state.mean.mul_(step.beta1).add_(g, 1 - step.beta1);
  state.square.mul_(step.beta2).addcmul_(g, g, 1 - step.beta2);
  state.parameter.mul_(1 - step.rate * step.decay);
  const Tensor scale = (state.square / correction2).sqrt_().add_(step.epsilon);
  state.parameter.addcdiv_(state.mean, scale, -step.rate / correction1);
}

}  // namespace tempera::ops
