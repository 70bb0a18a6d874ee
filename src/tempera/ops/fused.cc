#include "tempera/ops/fused.h"

#include "tempera/ops/backend.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {

using at::Tensor;

Tensor norm(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon, bool centred) {
  RECORD_FUNCTION("tempera::norm", {});
  TORCH_CHECK(x.dim() >= 1 && (!gain.defined() || (gain.dim() == 1 && gain.size(0) == x.size(-1))),
              "norm: gain ", gain.defined() ? gain.sizes() : at::IntArrayRef(),
              " given, one number for each of the ", x.size(-1), " columns expected");
  return backend_of(x).norm(x, {gain, bias, epsilon, centred});
}

NormedSum add_norm(const Tensor& x, const Tensor& residual, const Tensor& gain, const Tensor& bias,
                   double epsilon, bool centred) {
  RECORD_FUNCTION("tempera::norm", {});
  return backend_of(x).add_norm(x, residual, {gain, bias, epsilon, centred});
}

Tensor embedding(const Tensor& table, const Tensor& ids, at::ScalarType type) {
  RECORD_FUNCTION("tempera::embedding", {});
  return backend_of(table).embedding(table, ids, type);
}

Tensor swiglu(const Tensor& gate_up) {
  RECORD_FUNCTION("tempera::swiglu", {});
  TORCH_CHECK(gate_up.dim() >= 1 && gate_up.size(-1) % 2 == 0, "swiglu: last size ",
              gate_up.size(-1), " given, an even one expected");
  return backend_of(gate_up).swiglu(gate_up);
}

Tensor gelu(const Tensor& x, bool by_tanh) {
  RECORD_FUNCTION("tempera::gelu", {});
  return backend_of(x).gelu(x, by_tanh);
}

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  RECORD_FUNCTION("tempera::rotary", {});
  TORCH_CHECK(
      x.dim() == 4 && cos.dim() == 2 && cos.sizes() == sin.sizes() && 2 * cos.size(1) <= x.size(3),
      "rotary: x ", x.sizes(), " and tables ", cos.sizes(), ", ", sin.sizes(),
      " given, (B, H, T, D) and (length, at most D / 2) expected");
  TORCH_CHECK(positions.defined() || cos.size(0) >= x.size(2), "rotary: ", x.size(2),
              " rows given, the tables have ", cos.size(0));
  return backend_of(x).rotary(x, cos, sin, positions);
}

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                            double label_smoothing, const Tensor& shares) {
  RECORD_FUNCTION("tempera::cross_entropy", {});
  TORCH_CHECK(!shares.defined() || (shares.sizes() == targets.sizes() &&
                                    shares.scalar_type() == at::kFloat && !shares.requires_grad()),
              "linear_cross_entropy: shares ", shares.sizes(),
              " given, float32 without gradients and as many as targets, ", targets.sizes(),
              ", expected");
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1) &&
                  targets.dim() == 1 && targets.size(0) == hidden.size(0),
              "linear_cross_entropy: hidden ", hidden.sizes(), ", weight ", weight.sizes(),
              ", targets ", targets.sizes(), " given, (N, C), (V, C), (N) expected");
  if (targets.is_cpu() && targets.numel() > 0) {
    const int64_t largest = targets.max().item<int64_t>();
    TORCH_CHECK(largest < weight.size(0), "linear_cross_entropy: target ", largest,
                " given, the vocabulary has ", weight.size(0));
  }
  return backend_of(hidden).linear_cross_entropy(hidden, weight, targets, label_smoothing, shares);
}

void adamw(const Tensor& parameter, const Tensor& gradient, const Tensor& mean,
           const Tensor& square, const AdamWStep& step) {
  RECORD_FUNCTION("tempera::adamw", {});
  const at::NoGradGuard no_grad;
  backend_of(parameter).adamw({parameter, gradient, mean, square}, step);
}

}  // namespace tempera::ops
