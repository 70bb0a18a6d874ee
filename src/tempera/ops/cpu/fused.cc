#include <algorithm>
#include <cmath>

#include "tempera/ops/autograd.h"
#include "tempera/ops/cpu/cpu.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

template <class T>
kernels::Rows<T> rows_of(const Tensor& x) {
  return {memory<std::remove_const_t<T>>(x), x.stride(0), x.stride(1), x.stride(2)};
}

template <class T>
kernels::SwigluParams<T> swiglu_params(const Tensor& gate_up) {
  return {.rows = row_count(gate_up), .size = gate_up.size(-1) / 2, .gate_up = memory<T>(gate_up)};
}

Tensor rotate(const Tensor& any, const Tensor& cos, const Tensor& sin, const Tensor& positions,
              bool inverse) {
  const Tensor x = any.stride(3) == 1 ? any : any.contiguous();
  const Tensor y =
      at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  AtenParallel parallel;
  for_storage(x, [&]<class T>(T*) {
    kernels::rotary(kernels::RotaryParams<T>{.batch = x.size(0),
                                             .heads = x.size(1),
                                             .rows = x.size(2),
                                             .size = x.size(3),
                                             .pairs = cos.size(1),
                                             .x = rows_of<const T>(x),
                                             .y = rows_of<T>(y),
                                             .cos = memory<float>(cos),
                                             .sin = memory<float>(sin),
                                             .table_row = memory<int64_t>(positions),
                                             .inverse = inverse},
                    parallel);
  });
  return y;
}

struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& cos, const Tensor& sin,
                        const Maybe& maybe_positions) {
    const Tensor positions = maybe_positions.value_or(Tensor());
    ctx->save_for_backward({cos, sin, positions});
    return rotate(x, cos, sin, positions, /*inverse=*/false);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotate(d[0], saved[0], saved[1], saved[2], /*inverse=*/true), Tensor(), Tensor(),
            Tensor()};
  }
};

bool takes_rows(const Tensor& x, int64_t /*columns*/) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

bool takes_norm(const Tensor& x) { return takes_rows(x, x.size(-1)); }

void norm_forward(const NormInputs& in, const NormOutputs& out) {
  AtenParallel parallel;
  for_storage(in.x, [&]<class T>(T*) {
    kernels::norm_forward(norm_params<T>(in), norm_outputs<T>(out), parallel);
  });
}

void norm_backward(const NormInputs& in, const NormGradients& g) {
  const Tensor workspace = at::empty({kernels::norm_backward_workspace(in.x.size(-1))}, at::kFloat);
  AtenParallel parallel;
  for_storage(in.x, [&]<class T>(T*) {
    kernels::norm_backward(norm_params<T>(in), norm_gradients<T>(g), parallel,
                           memory<float>(workspace));
  });
}

void swiglu_forward(const Tensor& gate_up, const Tensor& y) {
  AtenParallel parallel;
  for_storage(y, [&]<class T>(T*) {
    kernels::swiglu_forward(swiglu_params<T>(gate_up), memory<T>(y), parallel);
  });
}

void swiglu_backward(const Tensor& gate_up, const Tensor& d_y, const Tensor& d_gate_up) {
  AtenParallel parallel;
  for_storage(d_y, [&]<class T>(T*) {
    kernels::swiglu_backward(swiglu_params<T>(gate_up), memory<T>(d_y), memory<T>(d_gate_up),
                             parallel);
  });
}

int64_t logit_rows(int64_t /*rows*/, int64_t classes) {
  // Few enough for the cache, but no fewer rows than a product needs to be fast.
  constexpr int64_t kLogitsAtOnce = 4 << 20, kLeastRows = 512;
  return std::max(kLogitsAtOnce / std::max<int64_t>(classes, 1), kLeastRows);
}

Tensor target_factor(const Tensor& targets) {
  const auto counted = targets.ge(0).sum().item<int64_t>();
  return at::scalar_tensor(1.0F / static_cast<float>(std::max<int64_t>(counted, 1)), at::kFloat);
}

void cross_entropy(const LossInputs& in, const Tensor& loss, bool gradient) {
  AtenParallel parallel;
  for_storage(in.logits, [&]<class T>(T*) {
    kernels::cross_entropy(
        kernels::CrossEntropyParams<T>{.rows = in.logits.size(0),
                                       .classes = in.logits.size(1),
                                       .logits = memory<T>(in.logits),
                                       .targets = memory<int64_t>(in.targets),
                                       .smoothing = static_cast<float>(in.smoothing),
                                       .factor = *memory<float>(in.factor),
                                       .loss = memory<float>(loss),
                                       .gradient = gradient},
        parallel);
  });
}

Tensor scaled_sum(const Tensor& loss, const Tensor& factor) { return loss.sum().mul_(factor); }

// In the order of their declaration; every one has a type of its own.
constexpr Passes kPasses{takes_rows,      takes_norm, norm_forward,  norm_backward, swiglu_forward,
                         swiglu_backward, logit_rows, target_factor, cross_entropy, scaled_sum};

}  // namespace

Cpu::Cpu() : KernelBackend(kPasses) {}

Tensor Cpu::rotary(const Tensor& x, const Tensor& cos, const Tensor& sin,
                   const Tensor& positions) const {
  if (!takes_rows(x, x.size(3))) return Composed::rotary(x, cos, sin, positions);
  if (positions.defined()) {
    TORCH_CHECK(
        positions.dim() == 2 && positions.size(0) == x.size(0) && positions.size(1) == x.size(2),
        "rotary: positions ", positions.sizes(), " given, (B, T) = (", x.size(0), ", ", x.size(2),
        ") expected");
    TORCH_CHECK(positions.numel() == 0 || (positions.min().item<int64_t>() >= 0 &&
                                           positions.max().item<int64_t>() < cos.size(0)),
                "rotary: positions beyond the tables' ", cos.size(0), " rows");
  }
  const Tensor rows = positions.defined() ? positions.to(at::kLong).contiguous() : positions;
  if (!wants_gradient({x})) return rotate(x, as_float(cos), as_float(sin), rows, /*inverse=*/false);
  return RotaryFunction::apply(x, as_float(cos), as_float(sin), maybe(rows));
}

Cpu::Quantized Cpu::quantized(const Tensor& any) const {
  if (!takes_rows(any, any.size(3))) return Composed::quantized(any);
  const Tensor x = any.stride(3) == 1 ? any : any.contiguous();
  const Quantized result{at::empty(x.sizes(), x.options().dtype(at::kChar)),
                         at::empty(x.sizes().slice(0, 3), x.options().dtype(at::kFloat))};
  AtenParallel parallel;
  for_storage(x, [&]<class T>(T*) {
    kernels::quantize(kernels::QuantizeParams<T>{.batch = x.size(0),
                                                 .heads = x.size(1),
                                                 .rows = x.size(2),
                                                 .size = x.size(3),
                                                 .x = rows_of<const T>(x),
                                                 .y = rows_of<int8_t>(result.rows),
                                                 .factor = rows_of<float>(result.factor)},
                      parallel);
  });
  return result;
}

void Cpu::adamw(const AdamWState& state, const AdamWStep& step) const {
  const auto& [parameter, gradient, mean, square] = state;
  if (parameter.scalar_type() != at::kFloat || !parameter.is_contiguous() ||
      !mean.is_contiguous() || !square.is_contiguous()) {
    Composed::adamw(state, step);
    return;
  }
  const Tensor g = gradient.contiguous();
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto correction = [&](double beta) {
    return f(1 - std::pow(beta, static_cast<double>(step.step)));
  };
  AtenParallel parallel;
  kernels::adamw({.count = parameter.numel(),
                  .value = memory<float>(parameter),
                  .gradient = memory<float>(g),
                  .mean = memory<float>(mean),
                  .square = memory<float>(square),
                  .rate = f(step.rate),
                  .beta1 = f(step.beta1),
                  .beta2 = f(step.beta2),
                  .epsilon = f(step.epsilon),
                  .decay = f(step.decay),
                  .correction1 = correction(step.beta1),
                  .correction2 = correction(step.beta2),
                  .gradient_factor = f(step.gradient_factor)},
                 parallel);
}

}  // namespace tempera::ops
