#include "tempera/ops/fused.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tempera/kernels/fused.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/backend.h"
#include "tempera/ops/cuda.h"
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

bool is_fused(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

int64_t row_count(const Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

template <class T>
kernels::NormParams<T> norm_params(const Tensor& x, const Tensor& residual, const Tensor& gain,
                                   const Tensor& bias, double epsilon, bool centred) {
  return {row_count(x),
          x.size(-1),
          memory<T>(x),
          memory<T>(residual),
          memory<float>(gain),
          memory<float>(bias),
          static_cast<float>(epsilon),
          centred};
}

// The results, and what the backward pass needs; h is the sum, or x where there is no residual.
struct Normed {
  Tensor h, gain, bias, mean, rstd, y;
};

Normed norm_rows(const Tensor& any, const Tensor& any_residual, const Tensor& gain,
                 const Tensor& bias, double epsilon, bool centred) {
  const Tensor x = any.contiguous();
  const Tensor residual = any_residual.defined() ? any_residual.contiguous() : any_residual;
  const auto numbers = [&] { return at::empty({row_count(x)}, x.options().dtype(at::kFloat)); };
  Normed n{residual.defined() ? at::empty_like(x) : x,
           as_float(gain),
           as_float(bias),
           centred ? numbers() : Tensor(),
           numbers(),
           at::empty_like(x)};
  AtenParallel parallel;
  for_storage(x, [&]<class T>(T*) {
    kernels::norm_forward(norm_params<T>(x, residual, n.gain, n.bias, epsilon, centred),
                          memory<T>(n.h), memory<T>(n.y), memory<float>(n.mean),
                          memory<float>(n.rstd), parallel);
  });
  return n;
}

// h and y; y alone where there is no residual.
struct AddNormFunction : Function<AddNormFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Maybe& residual,
                               const Maybe& gain, const Maybe& bias, double epsilon, bool centred) {
    const Normed n = norm_rows(x, residual.value_or(Tensor()), gain.value_or(Tensor()),
                               bias.value_or(Tensor()), epsilon, centred);
    ctx->save_for_backward({n.h, n.gain, n.bias, n.mean, n.rstd});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["centred"] = centred;
    ctx->saved_data["sum"] = residual.has_value();
    if (gain) ctx->saved_data["gain_type"] = gain->scalar_type();
    ctx->set_materialize_grads(false);
    return residual ? variable_list{n.h, n.y} : variable_list{n.y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const variable_list saved = ctx->get_saved_variables();
    const bool sum = ctx->saved_data["sum"].toBool();
    const Tensor d_h = sum && d[0].defined() ? d[0].contiguous() : Tensor();
    if (!d.back().defined()) return {d_h, d_h, Tensor(), Tensor(), Tensor(), Tensor()};
    const Tensor &h = saved[0], &gain = saved[1], &bias = saved[2];
    const Tensor d_y = d.back().contiguous(), d_x = at::empty_like(h);
    const Tensor d_gain = gain.defined() ? at::empty_like(gain) : Tensor();
    const Tensor d_bias = bias.defined() ? at::empty_like(bias) : Tensor();
    const Tensor workspace =
        at::empty({kernels::norm_backward_workspace(h.size(-1))}, h.options().dtype(at::kFloat));
    AtenParallel parallel;
    for_storage(h, [&]<class T>(T*) {
      kernels::norm_backward(
          norm_params<T>(h, {}, gain, bias, ctx->saved_data["epsilon"].toDouble(),
                         ctx->saved_data["centred"].toBool()),
          memory<float>(saved[3]), memory<float>(saved[4]), memory<T>(d_y), memory<T>(d_h),
          memory<T>(d_x), memory<float>(d_gain), memory<float>(d_bias), parallel,
          memory<float>(workspace));
    });
    const auto back = [&](const Tensor& g) {
      return g.defined() ? g.to(ctx->saved_data["gain_type"].toScalarType()) : g;
    };
    return {d_x, sum ? d_x : Tensor(), back(d_gain), back(d_bias), Tensor(), Tensor()};
  }
};

Tensor swiglu_rows(const Tensor& gate_up) {
  at::DimVector sizes(gate_up.sizes());
  sizes.back() /= 2;
  const Tensor y = at::empty(sizes, gate_up.options());
  AtenParallel parallel;
  for_storage(y, [&]<class T>(T*) {
    kernels::swiglu_forward(row_count(y), sizes.back(), memory<T>(gate_up), memory<T>(y), parallel);
  });
  return y;
}

struct SwigluFunction : Function<SwigluFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& any) {
    const Tensor gate_up = any.contiguous();
    ctx->save_for_backward({gate_up});
    return swiglu_rows(gate_up);
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const Tensor gate_up = ctx->get_saved_variables()[0];
    const Tensor d_y = d[0].contiguous();
    const Tensor result = at::empty_like(gate_up);
    AtenParallel parallel;
    for_storage(d_y, [&]<class T>(T*) {
      kernels::swiglu_backward(row_count(d_y), d_y.size(-1), memory<T>(gate_up), memory<T>(d_y),
                               memory<T>(result), parallel);
    });
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

// Columns of the widest row that the CUDA kernels norm.
constexpr int64_t kWidestNorm = 16384;

// Logits that exist at once: few enough for the cache, but no fewer rows than a product needs to be
// fast.
constexpr int64_t kLogitsAtOnce = 4 << 20, kLeastLogitRows = 512;

struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  // A frozen weight gets no gradient: its product is a third of the work.
  static Tensor forward(AutogradContext* ctx, const Tensor& hidden_any, const Tensor& weight,
                        const Tensor& targets_any, double smoothing, bool gradient,
                        bool weight_gradient) {
    const Tensor hidden = hidden_any.contiguous(), targets = targets_any.contiguous();
    const int64_t rows = hidden.size(0), classes = weight.size(0);
    const int64_t counted = targets.ge(0).sum().item<int64_t>();
    const int64_t step = std::max(kLogitsAtOnce / std::max<int64_t>(classes, 1), kLeastLogitRows);
    const Tensor loss = at::zeros({rows}, hidden.options().dtype(at::kFloat));
    const Tensor d_hidden = gradient ? at::empty_like(hidden) : Tensor();
    Tensor d_weight;
    if (weight_gradient) d_weight = rows > 0 ? at::empty_like(weight) : at::zeros_like(weight);
    const Tensor buffer = at::empty({std::min(step, rows), classes}, hidden.options());
    AtenParallel parallel;
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const Tensor h = hidden.narrow(0, first, count);
      Tensor logits = buffer.narrow(0, 0, count);
      product_into(logits, h, weight.t());
      for_storage(hidden, [&]<class T>(T*) {
        kernels::cross_entropy(
            kernels::CrossEntropyParams<T>{count, classes, memory<T>(logits),
                                           memory<int64_t>(targets) + first,
                                           static_cast<float>(smoothing),
                                           1.0F / static_cast<float>(std::max<int64_t>(counted, 1)),
                                           memory<float>(loss) + first, gradient},
            parallel);
      });
      if (!gradient) continue;
      Tensor d_h = d_hidden.narrow(0, first, count);
      product_into(d_h, logits, weight);
      if (weight_gradient) product_into(d_weight, logits.t(), h, /*add=*/first > 0);
    }
    if (gradient) ctx->save_for_backward({d_hidden, d_weight});
    return loss.sum().div_(static_cast<double>(std::max<int64_t>(counted, 1)));
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const variable_list saved = ctx->get_saved_variables();
    const double factor = d[0].item<double>();
    const auto times = [&](const Tensor& g) {
      return factor == 1 || !g.defined() ? g : g.mul(factor);
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
  if (cuda::takes(x, x.size(-1)) && x.size(-1) <= kWidestNorm)
    return cuda::add_norm(x, {}, gain, bias, epsilon, centred).y;
  if (!is_fused(x)) return composed_norm(x, gain, bias, epsilon, centred);
  if (!wants_gradient({x, gain, bias})) return norm_rows(x, {}, gain, bias, epsilon, centred).y;
  return AddNormFunction::apply(x, Maybe(), maybe(gain), maybe(bias), epsilon, centred)[0];
}

NormedSum add_norm(const Tensor& x, const Tensor& residual, const Tensor& gain, const Tensor& bias,
                   double epsilon, bool centred) {
  if (residual.scalar_type() == x.scalar_type() && residual.sizes() == x.sizes()) {
    RECORD_FUNCTION("tempera::norm", {});
    if (cuda::takes(x, x.size(-1)) && x.size(-1) <= kWidestNorm)
      return cuda::add_norm(x, residual, gain, bias, epsilon, centred);
    if (is_fused(x) && wants_gradient({x, residual, gain, bias})) {
      const variable_list parts =
          AddNormFunction::apply(x, maybe(residual), maybe(gain), maybe(bias), epsilon, centred);
      return {parts[0], parts[1]};
    }
    if (is_fused(x)) {
      const Normed n = norm_rows(x, residual, gain, bias, epsilon, centred);
      return {n.h, n.y};
    }
  }
  const Tensor h = x + residual;
  return {h, norm(h, gain, bias, epsilon, centred)};
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
  if (cuda::takes(gate_up, gate_up.size(-1) / 2)) return cuda::swiglu(gate_up);
  if (is_fused(gate_up))
    return wants_gradient({gate_up}) ? SwigluFunction::apply(gate_up)
                                     : swiglu_rows(gate_up.contiguous());
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
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
  if (cuda::takes(hidden, hidden.size(1)) && hidden.scalar_type() == weight.scalar_type())
    return cuda::linear_cross_entropy(hidden, weight, targets, label_smoothing);
  if (is_fused(hidden)) {
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
