#include "tempera/nn/learned_rope.h"

#include <optional>

#include "tempera/ops/fused.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (B, T, pairs), or (T, pairs) where all sequences have the same positions, as rows of the table.
torch::Tensor into_table(const torch::Tensor& gradient, const torch::Tensor& table,
                         const torch::Tensor& positions) {
  auto rows = torch::zeros_like(table);
  if (positions.defined()) return rows.index_add_(0, positions.flatten(), gradient.flatten(0, 1));
  rows.narrow(0, 0, gradient.size(1)).copy_(gradient.sum(0));
  return rows;
}

// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin: the way back turns the other way.
class LearnedRotary : public torch::autograd::Function<LearnedRotary> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& cos, const torch::Tensor& sin,
                               const std::optional<torch::Tensor>& given) {
    const auto positions = given.value_or(torch::Tensor());
    context->save_for_backward({x, cos, sin, positions});
    return ops::rotary(x, cos, sin, positions);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &cos = saved[1], &sin = saved[2], &positions = saved[3];
    const auto& gradient = gradients[0];
    const int64_t pairs = cos.size(1);
    const auto half = [&](const torch::Tensor& rows, int64_t first) {
      return rows.narrow(-1, first, pairs).to(torch::kFloat32);
    };
    const auto g1 = half(gradient, 0), g2 = half(gradient, pairs);
    const auto x1 = half(x, 0), x2 = half(x, pairs);
    const auto to_cos = (g1 * x1 + g2 * x2).sum(1), to_sin = (g2 * x1 - g1 * x2).sum(1);
    return {ops::rotary(gradient, cos, -sin, positions), into_table(to_cos, cos, positions),
            into_table(to_sin, sin, positions), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor shifted_frequencies(const torch::Tensor& start, const torch::Tensor& shift) {
  const auto reach = (start * kShiftReach).clamp_min(1);
  return start * (shift.to(torch::kFloat64) / reach).exp();
}

RopeConfig settled_rope(const RopeConfig& rope, int64_t size, const torch::Tensor& shift) {
  const torch::NoGradGuard no_grad;
  RopeConfig bare = rope;
  bare.scaling = RopeScaling::kNone;
  const auto factors =
      (rotary_frequencies(bare, size, 0, 0) /
       shifted_frequencies(rotary_frequencies(rope, size, 0, 0), shift.detach().to(torch::kCPU)))
          .contiguous();
  RopeConfig settled = rope;
  settled.learned = false;
  settled.factors = {factors.data_ptr<double>(), factors.data_ptr<double>() + factors.numel()};
  return settled;
}

Angles learned_angles(const torch::Tensor& frequencies, double amplitude, int64_t length,
                      const torch::Tensor& positions) {
  const auto place = torch::arange(length, frequencies.options().requires_grad(false));
  const auto angle = torch::outer(place, frequencies);
  const auto table = [&](const torch::Tensor& waves) {
    return (waves * amplitude).to(torch::kFloat32);
  };
  return {table(angle.cos()), table(angle.sin()),
          positions.defined() ? positions.clamp_min(0) : positions};
}

torch::Tensor learned_rotary(const torch::Tensor& x, const Angles& angles) {
  const auto positions =
      angles.positions.defined() ? std::optional(angles.positions) : std::nullopt;
  return LearnedRotary::apply(x, angles.cos, angles.sin, positions);
}

}  // namespace tempera::nn
