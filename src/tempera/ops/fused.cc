#include "tempera/ops/fused.h"

#include <algorithm>
#include <cmath>

#include "tempera/kernels/fused.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/backend.h"
#include "tempera/ops/cuda.h"
#include "tempera/ops/fused_passes.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/product.h"
#include "tempera/ops/prologue.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Columns of the widest row that the CUDA kernels norm.
constexpr int64_t kWidestNorm = 16384;

bool is_fused(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}
// Whether its rows of so many columns go through the passes of its device.
bool has_pass(const Tensor& x, int64_t columns) { return is_fused(x) || cuda::takes(x, columns); }
bool has_norm_pass(const Tensor& x) {
  return is_fused(x) || (cuda::takes(x, x.size(-1)) && x.size(-1) <= kWidestNorm);
}

// The results, and what the backward pass needs; in.x is the sum, or x where there is no residual.
struct Normed {
  NormInputs in;
  NormOutputs out;
};

Normed norm_rows(const Tensor& any, const Tensor& residual, const Tensor& gain, const Tensor& bias,
                 double epsilon, bool centred) {
  const Tensor x = any.contiguous();
  const auto numbers = [&] { return at::empty({row_count(x)}, x.options().dtype(at::kFloat)); };
  Normed n{{x, residual.defined() ? residual.contiguous() : residual, as_float(gain),
            as_float(bias), epsilon, centred},
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
    const auto [in, out] = norm_rows(x, residual.value_or(Tensor()), gain.value_or(Tensor()),
                                     bias.value_or(Tensor()), epsilon, centred);
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

// (B, T, heads, D) storage seen as (B, heads, T, D).
Tensor make_heads(const Tensor& like, int64_t batch, int64_t rows, int64_t heads, int64_t size) {
  return at::empty({batch, rows, heads, size}, like.options()).transpose(1, 2);
}

struct SplitFunction : Function<SplitFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& qkv, int64_t heads,
                               int64_t kv_heads) {
    const int64_t batch = qkv.size(0), rows = qkv.size(1), all = heads + 2 * kv_heads;
    const int64_t size = qkv.size(2) / all;
    const Tensor joint = qkv.view({batch, rows, all, size});
    variable_list parts;
    int64_t first = 0;
    for (const int64_t count : {heads, kv_heads, kv_heads}) {
      parts.push_back(make_heads(qkv, batch, rows, count, size));
      parts.back().copy_(joint.narrow(2, first, count).transpose(1, 2));
      first += count;
    }
    ctx->saved_data["sizes"] = qkv.sizes().vec();
    return parts;
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto sizes = ctx->saved_data["sizes"].toIntVector();
    Tensor d_qkv;
    int64_t first = 0;
    for (const Tensor& part : d) {
      if (!d_qkv.defined()) {
        const int64_t all = sizes[2] / part.size(3);
        d_qkv = at::empty({sizes[0], sizes[1], all, part.size(3)}, part.options());
      }
      d_qkv.narrow(2, first, part.size(1)).copy_(part.transpose(1, 2));
      first += part.size(1);
    }
    return {d_qkv.view(sizes), Tensor(), Tensor()};
  }
};

template <class T>
kernels::Rows<T> rows_of(const Tensor& x) {
  return {memory<std::remove_const_t<T>>(x), x.stride(0), x.stride(1), x.stride(2)};
}

Tensor rotate(const Tensor& any, const Tensor& cos, const Tensor& sin, const Tensor& positions,
              bool inverse) {
  const Tensor x = any.stride(3) == 1 ? any : any.contiguous();
  const Tensor y = make_heads(x, x.size(0), x.size(2), x.size(1), x.size(3));
  AtenParallel parallel;
  for_storage(x, [&]<class T>(T*) {
    kernels::RotaryParams<T> p{x.size(0),
                               x.size(1),
                               x.size(2),
                               x.size(3),
                               cos.size(1),
                               rows_of<const T>(x),
                               rows_of<T>(y),
                               memory<float>(cos),
                               memory<float>(sin),
                               memory<int64_t>(positions),
                               inverse};
    kernels::rotary(p, parallel);
  });
  return y;
}

struct RotaryFunction : Function<RotaryFunction> {
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

struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  // A frozen weight gets no gradient: its product is a third of the work.
  static Tensor forward(AutogradContext* ctx, const Tensor& hidden_any, const Tensor& weight_any,
                        const Tensor& targets_any, double smoothing, bool gradient,
                        bool weight_gradient) {
    const Tensor hidden = hidden_any.contiguous(), weight = weight_any.contiguous();
    const Tensor targets = targets_any.to(at::kLong).contiguous();
    const FusedPasses& passes = passes_of(hidden);
    const int64_t rows = hidden.size(0), classes = weight.size(0);
    const int64_t step = passes.logit_rows(rows, classes);
    const Tensor factor = passes.target_factor(targets);
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
      product_into(in.logits, h, weight.t());
      passes.cross_entropy(in, part, gradient);
      if (gradient) product_into(d_hidden.narrow(0, first, count), in.logits, weight);
      if (weight_gradient) product_into(d_weight, in.logits.t(), h, /*add=*/first > 0);
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
    return {times(saved[0]), times(saved[1]), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// The compositions compute as the fused passes do: in float, whatever the storage.
Tensor composed_norm(const Tensor& stored, const Tensor& gain, const Tensor& bias, double epsilon,
                     bool centred) {
  const Tensor x = stored.to(real_type(stored.scalar_type()));
  Tensor y = centred ? x - x.mean(-1, /*keepdim=*/true) : x;
  y = y * y.square().mean(-1, /*keepdim=*/true).add(epsilon).rsqrt();
  if (gain.defined()) y = y * gain;
  if (bias.defined()) y = y + bias;
  return y.to(stored.scalar_type());
}

Tensor composed_rotary(const Tensor& stored, const Tensor& cos, const Tensor& sin,
                       const Tensor& positions) {
  const Tensor x = stored.to(real_type(stored.scalar_type()));
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

}  // namespace

Tensor norm(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon, bool centred) {
  RECORD_FUNCTION("tempera::norm", {});
  TORCH_CHECK(x.dim() >= 1 && (!gain.defined() || (gain.dim() == 1 && gain.size(0) == x.size(-1))),
              "norm: gain ", gain.defined() ? gain.sizes() : at::IntArrayRef(),
              " given, one number for each of the ", x.size(-1), " columns expected");
  if (!has_norm_pass(x)) return composed_norm(x, gain, bias, epsilon, centred);
  if (!wants_gradient({x, gain, bias})) return norm_rows(x, {}, gain, bias, epsilon, centred).out.y;
  return AddNormFunction::apply(x, Maybe(), maybe(gain), maybe(bias), epsilon, centred)[0];
}

NormedSum add_norm(const Tensor& x, const Tensor& residual, const Tensor& gain, const Tensor& bias,
                   double epsilon, bool centred) {
  if (residual.scalar_type() != x.scalar_type() || residual.sizes() != x.sizes() ||
      !has_norm_pass(x)) {
    const Tensor h = x + residual;
    return {h, norm(h, gain, bias, epsilon, centred)};
  }
  RECORD_FUNCTION("tempera::norm", {});
  if (!wants_gradient({x, residual, gain, bias})) {
    const Normed n = norm_rows(x, residual, gain, bias, epsilon, centred);
    return {n.out.h, n.out.y};
  }
  const variable_list parts =
      AddNormFunction::apply(x, maybe(residual), maybe(gain), maybe(bias), epsilon, centred);
  return {parts[0], parts[1]};
}

Tensor embedding(const Tensor& table, const Tensor& ids, at::ScalarType type) {
  RECORD_FUNCTION("tempera::embedding", {});
  if (wants_gradient({table}) && cuda::takes(table, table.size(-1)) &&
      (type == at::kFloat || type == at::kBFloat16))
    return cuda::embedding(table, ids, type);
  return at::embedding(table, ids).to(type);
}

Tensor swiglu(const Tensor& gate_up) {
  RECORD_FUNCTION("tempera::swiglu", {});
  TORCH_CHECK(gate_up.dim() >= 1 && gate_up.size(-1) % 2 == 0, "swiglu: last size ",
              gate_up.size(-1), " given, an even one expected");
  if (!has_pass(gate_up, gate_up.size(-1) / 2)) {
    const auto halves = gate_up.chunk(2, -1);
    return at::silu(halves[0]) * halves[1];
  }
  const Tensor rows = gate_up.contiguous();
  return wants_gradient({rows}) ? SwigluFunction::apply(rows) : swiglu_rows(rows);
}

Heads split_heads(const Tensor& qkv, int64_t heads, int64_t kv_heads) {
  RECORD_FUNCTION("tempera::split_heads", {});
  const int64_t all = heads + 2 * kv_heads;
  TORCH_CHECK(qkv.dim() == 3 && all > 0 && qkv.size(2) % all == 0, "split_heads: ", qkv.sizes(),
              " given, (B, T, ", all, " * head size) expected");
  const Tensor joint = qkv.contiguous();
  if (!wants_gradient({qkv})) {
    const int64_t size = qkv.size(2) / all;
    const auto part = [&](int64_t first, int64_t count) {
      return joint.as_strided({qkv.size(0), count, qkv.size(1), size},
                              {joint.stride(0), size, joint.stride(1), 1},
                              joint.storage_offset() + first * size);
    };
    return {part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads)};
  }
  const variable_list parts = SplitFunction::apply(joint, heads, kv_heads);
  return {parts[0], parts[1], parts[2]};
}

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  RECORD_FUNCTION("tempera::rotary", {});
  TORCH_CHECK(
      x.dim() == 4 && cos.dim() == 2 && cos.sizes() == sin.sizes() && 2 * cos.size(1) <= x.size(3),
      "rotary: x ", x.sizes(), " and tables ", cos.sizes(), ", ", sin.sizes(),
      " given, (B, H, T, D) and (length, at most D / 2) expected");
  TORCH_CHECK(positions.defined() || cos.size(0) >= x.size(2), "rotary: ", x.size(2),
              " rows given, the tables have ", cos.size(0));
  if (has_prologue(x, x.size(3), cos.size(1))) {
    PrologueArgs args{.x = {}, .size = x.size(3), .operands = {}};
    args.operands.push_back({.heads = x.size(1), .x = x, .rotate = true});
    args.cos = cos;
    args.sin = sin;
    args.positions = positions;
    return prologue(args)[0];
  }
  if (!is_fused(x)) return composed_rotary(x, cos, sin, positions);
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

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                            double label_smoothing) {
  RECORD_FUNCTION("tempera::cross_entropy", {});
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1) &&
                  targets.dim() == 1 && targets.size(0) == hidden.size(0),
              "linear_cross_entropy: hidden ", hidden.sizes(), ", weight ", weight.sizes(),
              ", targets ", targets.sizes(), " given, (N, C), (V, C), (N) expected");
  if (targets.is_cpu() && targets.numel() > 0) {
    const int64_t largest = targets.max().item<int64_t>();
    TORCH_CHECK(largest < weight.size(0), "linear_cross_entropy: target ", largest,
                " given, the vocabulary has ", weight.size(0));
  }
  if (has_pass(hidden, hidden.size(1)) && hidden.scalar_type() == weight.scalar_type()) {
    return CrossEntropyFunction::apply(hidden, weight, targets, label_smoothing,
                                       wants_gradient({hidden, weight}), wants_gradient({weight}));
  }
  const Tensor clean = targets.masked_fill(targets.lt(0), -100);
  const Tensor logits = hidden.mm(weight.t()).to(real_type(hidden.scalar_type()));
  const Tensor sum =
      at::cross_entropy_loss(logits, clean, {}, at::Reduction::Sum, -100, label_smoothing);
  return sum / targets.ge(0).sum().clamp_min(1);
}

void adamw(const Tensor& parameter, const Tensor& gradient, const Tensor& mean,
           const Tensor& square, const AdamWStep& step) {
  RECORD_FUNCTION("tempera::adamw", {});
  const at::NoGradGuard no_grad;
  const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1 - std::pow(step.beta2, static_cast<double>(step.step));
  const bool fused = parameter.is_cpu() && parameter.scalar_type() == at::kFloat &&
                     parameter.is_contiguous() && mean.is_contiguous() && square.is_contiguous();
  if (fused) {
    const Tensor g = gradient.contiguous();
    AtenParallel parallel;
    const auto f = [](double x) { return static_cast<float>(x); };
    kernels::adamw(
        {parameter.numel(), memory<float>(parameter), memory<float>(g), memory<float>(mean),
         memory<float>(square), f(step.rate), f(step.beta1), f(step.beta2), f(step.epsilon),
         f(step.decay), f(correction1), f(correction2), f(step.gradient_factor)},
        parallel);
    return;
  }
  const Tensor g = gradient * step.gradient_factor;
  mean.mul_(step.beta1).add_(g, 1 - step.beta1);
  square.mul_(step.beta2).addcmul_(g, g, 1 - step.beta2);
  parameter.mul_(1 - step.rate * step.decay);
  const Tensor scale = (square / correction2).sqrt_().add_(step.epsilon);
  parameter.addcdiv_(mean, scale, -step.rate / correction1);
}

}  // namespace tempera::ops
