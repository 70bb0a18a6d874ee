#include "tempera/ops/kernel_backend.h"

#include <algorithm>

#include "tempera/ops/autograd.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Of a tensor whose forward pass went through the kernels.
const KernelBackend& kernels_of(const Tensor& x) {
  return static_cast<const KernelBackend&>(backend_of(x));
}
const Passes& passes_of(const Tensor& x) { return kernels_of(x).passes(); }

// The results, and what the backward pass needs; in.x is the sum, or x where there is no residual.
struct Normed {
  NormInputs in;
  NormOutputs out;
};

Normed norm_rows(const Tensor& any, const Tensor& residual, const NormWeights& weights) {
  const bool centred = weights.centred;
  const Tensor x = any.contiguous();
  const auto numbers = [&] { return at::empty({row_count(x)}, x.options().dtype(at::kFloat)); };
  Normed n{{x, residual.defined() ? residual.contiguous() : residual, as_float(weights.gain),
            as_float(weights.bias), weights.epsilon, centred},
           {residual.defined() ? at::empty_like(x) : Tensor(), at::empty_like(x),
            centred ? numbers() : Tensor(), numbers()}};
  passes_of(x).norm_forward(n.in, n.out);
  if (residual.defined()) n.in.x = n.out.h;
  return n;
}

// h and y; y alone where there is no residual.
struct AddNormFunction : Function<AddNormFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Maybe& residual,
                               const Maybe& gain, const Maybe& bias, double epsilon, bool centred) {
    const auto [in, out] =
        norm_rows(x, residual.value_or(Tensor()),
                  {gain.value_or(Tensor()), bias.value_or(Tensor()), epsilon, centred});
    ctx->save_for_backward({in.x, in.gain, in.bias, out.mean, out.rstd});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["centred"] = centred;
    ctx->saved_data["sum"] = residual.has_value();
    if (gain) ctx->saved_data["gain_type"] = gain->scalar_type();
    ctx->set_materialize_grads(false);
    return residual ? variable_list{out.h, out.y} : variable_list{out.y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const variable_list saved = ctx->get_saved_variables();
    const bool sum = ctx->saved_data["sum"].toBool();
    const Tensor d_h = sum && d[0].defined() ? d[0].contiguous() : Tensor();
    if (!d.back().defined()) return {d_h, d_h, Tensor(), Tensor(), Tensor(), Tensor()};
    const auto like = [](const Tensor& t) { return t.defined() ? at::empty_like(t) : t; };
    const NormInputs in{saved[0],
                        {},
                        saved[1],
                        saved[2],
                        ctx->saved_data["epsilon"].toDouble(),
                        ctx->saved_data["centred"].toBool()};
    const NormGradients g{saved[3],   saved[4],      d.back().contiguous(), d_h,
                          like(in.x), like(in.gain), like(in.bias)};
    passes_of(in.x).norm_backward(in, g);
    const auto back = [&](const Tensor& t) {
      return t.defined() ? t.to(ctx->saved_data["gain_type"].toScalarType()) : t;
    };
    return {g.d_x, sum ? g.d_x : Tensor(), back(g.d_gain), back(g.d_bias), Tensor(), Tensor()};
  }
};

Tensor swiglu_rows(const Tensor& gate_up) {
  at::DimVector sizes(gate_up.sizes());
  sizes.back() /= 2;
  const Tensor y = at::empty(sizes, gate_up.options());
  passes_of(y).swiglu_forward(gate_up, y);
  return y;
}

struct SwigluFunction : Function<SwigluFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    return swiglu_rows(gate_up);
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const Tensor gate_up = ctx->get_saved_variables()[0];
    const Tensor d_y = d[0].contiguous(), result = at::empty_like(gate_up);
    passes_of(d_y).swiglu_backward(gate_up, d_y, result);
    return {result};
  }
};

struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  // A frozen weight gets no gradient: its product is a third of the work.
  static Tensor forward(AutogradContext* ctx, const Tensor& hidden_any, const Tensor& weight_any,
                        const Tensor& targets_any, const Maybe& shares_any, double smoothing,
                        bool gradient, bool weight_gradient) {
    const Tensor hidden = hidden_any.contiguous(), weight = weight_any.contiguous();
    const Tensor targets = targets_any.to(at::kLong).contiguous();
    const KernelBackend& kernels = kernels_of(hidden);
    const Passes& passes = kernels.passes();
    const int64_t rows = hidden.size(0), classes = weight.size(0);
    const int64_t step = passes.logit_rows(rows, classes);
    const Tensor shares = shares_any ? shares_any->unsqueeze(1) : Tensor();
    const Tensor factor =
        shares_any ? Composed::shares_factor(targets, *shares_any) : passes.target_factor(targets);
    const Tensor loss = at::empty({rows}, hidden.options().dtype(at::kFloat));
    const Tensor d_hidden = gradient ? at::empty_like(hidden) : Tensor();
    Tensor d_weight;
    if (weight_gradient) d_weight = rows > 0 ? at::empty_like(weight) : at::zeros_like(weight);
    const Tensor buffer = at::empty({std::min(step, rows), classes}, hidden.options());
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const Tensor h = hidden.narrow(0, first, count), part = loss.narrow(0, first, count);
      const LossInputs in{buffer.narrow(0, 0, count), targets.narrow(0, first, count), factor,
                          smoothing};
      kernels.product_into(in.logits, h, weight.t(), /*add=*/false);
      passes.cross_entropy(in, part, gradient);
      const Tensor share = shares_any ? shares.narrow(0, first, count) : Tensor();
      if (gradient) {
        const Tensor d_rows = d_hidden.narrow(0, first, count);
        kernels.product_into(d_rows, in.logits, weight, /*add=*/false);
        if (shares_any) d_rows.mul_(share);
      }
      if (weight_gradient)
        kernels.product_into(d_weight, in.logits.t(),
                             shares_any ? (h * share).to(h.scalar_type()) : h,
                             /*add=*/first > 0);
      if (shares_any) part.mul_(share.squeeze(1));
    }
    if (gradient) ctx->save_for_backward({d_hidden, d_weight});
    return passes.scaled_sum(loss, factor);
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const variable_list saved = ctx->get_saved_variables();
    const bool is_one = d[0].is_cpu() && d[0].item<double>() == 1;
    const auto times = [&](const Tensor& g) {
      return is_one || !g.defined() ? g : g.mul(d[0].to(g.scalar_type()));
    };
    return {times(saved[0]), times(saved[1]), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

AttentionResult KernelBackend::attention(const AttentionArgs& args) const {
  if (!has_kernel(args)) return Composed::attention(args);
  AttentionArgs finished = args;
  finish_slopes(finished);
  return attention_autograd(finished);
}

Tensor KernelBackend::norm(const Tensor& x, const NormWeights& w) const {
  if (!passes_.takes_norm(x)) return Composed::norm(x, w);
  if (!wants_gradient({x, w.gain, w.bias})) return norm_rows(x, {}, w).out.y;
  return AddNormFunction::apply(x, Maybe(), maybe(w.gain), maybe(w.bias), w.epsilon, w.centred)[0];
}

NormedSum KernelBackend::add_norm(const Tensor& x, const Tensor& residual,
                                  const NormWeights& w) const {
  if (residual.scalar_type() != x.scalar_type() || residual.sizes() != x.sizes() ||
      !passes_.takes_norm(x))
    return Composed::add_norm(x, residual, w);
  if (!wants_gradient({x, residual, w.gain, w.bias})) {
    const Normed n = norm_rows(x, residual, w);
    return {n.out.h, n.out.y};
  }
  const variable_list parts = AddNormFunction::apply(x, maybe(residual), maybe(w.gain),
                                                     maybe(w.bias), w.epsilon, w.centred);
  return {parts[0], parts[1]};
}

Tensor KernelBackend::swiglu(const Tensor& gate_up) const {
  if (!passes_.takes_rows(gate_up, gate_up.size(-1) / 2)) return Composed::swiglu(gate_up);
  const Tensor rows = gate_up.contiguous();
  return wants_gradient({rows}) ? SwigluFunction::apply(rows) : swiglu_rows(rows);
}

Tensor KernelBackend::linear_cross_entropy(const Tensor& hidden, const Tensor& weight,
                                           const Tensor& targets, double label_smoothing,
                                           const Tensor& shares) const {
  if (!passes_.takes_rows(hidden, hidden.size(1)) || hidden.scalar_type() != weight.scalar_type())
    return Composed::linear_cross_entropy(hidden, weight, targets, label_smoothing, shares);
  return CrossEntropyFunction::apply(hidden, weight, targets, maybe(shares), label_smoothing,
                                     wants_gradient({hidden, weight}), wants_gradient({weight}));
}

void KernelBackend::product_into(Tensor out, const Tensor& a, const Tensor& b, bool add) const {
  RECORD_FUNCTION("tempera::product", {});
  const at::NoGradGuard no_grad;
  if (add)
    out.addmm_(a, b);
  else
    at::mm_out(out, a, b);
}

}  // namespace tempera::ops
