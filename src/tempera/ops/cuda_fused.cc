#include <algorithm>
#include <optional>

#include "tempera/kernels/cuda/fused.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/cuda.h"
#include "tempera/ops/cuda_stream.h"
#include "tempera/ops/problem.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops::cuda {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

int64_t row_count(const Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

struct NormPass {
  Tensor gain, bias, h, y, mean, rstd;
};

NormPass norm_pass(const Tensor& x, const Tensor& residual, const Tensor& gain, const Tensor& bias,
                   double epsilon, bool centred) {
  const auto numbers = [&] { return at::empty({row_count(x)}, x.options().dtype(at::kFloat)); };
  NormPass n{as_float(gain),
             as_float(bias),
             residual.defined() ? at::empty_like(x) : Tensor(),
             at::empty_like(x),
             centred ? numbers() : Tensor(),
             numbers()};
  for_storage(x, [&]<class T>(T*) {
    kernels::cuda::norm_forward(
        kernels::cuda::NormParams<T>{row_count(x), x.size(-1), memory<T>(x), memory<T>(residual),
                                     memory<float>(n.gain), memory<float>(n.bias),
                                     static_cast<float>(epsilon), centred},
        {memory<T>(n.h), memory<T>(n.y), memory<float>(n.mean), memory<float>(n.rstd)},
        stream_of(x));
  });
  return n;
}

// h and y; y alone where there is no residual.
struct AddNormFunction : Function<AddNormFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Maybe& residual,
                               const Maybe& gain, const Maybe& bias, double epsilon, bool centred) {
    const NormPass n = norm_pass(x, residual.value_or(Tensor()), gain.value_or(Tensor()),
                                 bias.value_or(Tensor()), epsilon, centred);
    ctx->save_for_backward({residual ? n.h : x, n.gain, n.bias, n.mean, n.rstd});
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
    const Tensor past = sum && d[0].defined() ? d[0].contiguous() : Tensor();
    const Tensor& d_any = d.back();
    if (!d_any.defined()) return {past, past, Tensor(), Tensor(), Tensor(), Tensor()};
    const Tensor &h = saved[0], &gain = saved[1], &bias = saved[2];
    const Tensor d_y = d_any.contiguous(), d_x = at::empty_like(h);
    const Tensor d_gain = gain.defined() ? at::empty_like(gain) : Tensor();
    const Tensor d_bias = bias.defined() ? at::empty_like(bias) : Tensor();
    const Tensor workspace = byte_workspace(
        kernels::cuda::norm_backward_workspace(row_count(h), h.size(-1)), h.device());
    for_storage(h, [&]<class T>(T*) {
      kernels::cuda::norm_backward(
          kernels::cuda::NormParams<T>{row_count(h), h.size(-1), memory<T>(h), nullptr,
                                       memory<float>(gain), memory<float>(bias),
                                       static_cast<float>(ctx->saved_data["epsilon"].toDouble()),
                                       ctx->saved_data["centred"].toBool()},
          {memory<float>(saved[3]), memory<float>(saved[4]), memory<T>(d_y), memory<T>(past),
           memory<T>(d_x), memory<float>(d_gain), memory<float>(d_bias)},
          workspace.mutable_data_ptr(), stream_of(h));
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
  for_storage(y, [&]<class T>(T*) {
    kernels::cuda::activation_forward(
        kernels::cuda::ActivationParams<T>{kernels::cuda::Activation::kSilu, /*gated=*/true,
                                           row_count(y), sizes.back(), memory<T>(gate_up)},
        memory<T>(y), stream_of(y));
  });
  return y;
}

struct CudaSwigluFunction : Function<CudaSwigluFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    return swiglu_rows(gate_up);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const Tensor gate_up = ctx->get_saved_variables()[0];
    const Tensor d_y = d[0].contiguous(), result = at::empty_like(gate_up);
    for_storage(d_y, [&]<class T>(T*) {
      kernels::cuda::activation_backward(
          kernels::cuda::ActivationParams<T>{kernels::cuda::Activation::kSilu, /*gated=*/true,
                                             row_count(d_y), d_y.size(-1), memory<T>(gate_up)},
          memory<T>(d_y), memory<T>(result), stream_of(d_y));
    });
    return {result};
  }
};

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& table, const Tensor& ids,
                        at::ScalarType type) {
    ctx->save_for_backward({ids});
    ctx->saved_data["rows"] = table.size(0);
    return at::embedding(table, ids).to(type);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const Tensor ids = ctx->get_saved_variables()[0].to(at::kLong).contiguous();
    const Tensor d_y = d[0].contiguous();
    const int64_t classes = ctx->saved_data["rows"].toInt();
    const Tensor result = at::empty({classes, d_y.size(-1)}, d_y.options().dtype(at::kFloat));
    const Tensor workspace =
        byte_workspace(kernels::cuda::embedding_backward_workspace(ids.numel()), d_y.device());
    for_storage(d_y, [&]<class T>(T*) {
      kernels::cuda::embedding_backward(
          kernels::cuda::EmbeddingGradient<T, float>{ids.numel(), d_y.size(-1), classes,
                                                     memory<int64_t>(ids), memory<T>(d_y),
                                                     memory<float>(result)},
          workspace.mutable_data_ptr(), stream_of(d_y));
    });
    return {result, Tensor(), Tensor()};
  }
};

// Logits that exist at once.
constexpr int64_t kLogitsAtOnce = 1 << 29;

// Rows of logits at a time: as few parts as fit, of the same size.
int64_t rows_at_once(int64_t rows, int64_t classes) {
  const int64_t parts = std::max<int64_t>((rows * classes + kLogitsAtOnce - 1) / kLogitsAtOnce, 1);
  const int64_t each = (rows + parts - 1) / parts;
  return std::max<int64_t>((each + 127) / 128 * 128, 128);
}

struct CudaCrossEntropyFunction : Function<CudaCrossEntropyFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& hidden, const Tensor& weight,
                        const Tensor& targets, double smoothing, bool gradient,
                        bool weight_gradient) {
    const int64_t rows = hidden.size(0), classes = weight.size(0);
    const int64_t step = rows_at_once(rows, classes);
    const auto real = hidden.options().dtype(at::kFloat);
    const auto stream = stream_of(hidden);
    const Tensor loss = at::empty({rows}, real), mean = at::empty({}, real);
    const Tensor factor = at::empty({}, real);
    kernels::cuda::target_factor(rows, memory<int64_t>(targets), memory<float>(factor), stream);
    const Tensor d_hidden = gradient ? at::empty_like(hidden) : Tensor();
    Tensor d_weight = weight_gradient ? at::empty_like(weight) : Tensor();
    const Tensor buffer = at::empty({std::min(step, rows), classes}, hidden.options());
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const Tensor h = hidden.narrow(0, first, count);
      Tensor logits = buffer.narrow(0, 0, count);
      at::mm_out(logits, h, weight.t());
      for_storage(hidden, [&]<class T>(T*) {
        kernels::cuda::cross_entropy(
            kernels::cuda::CrossEntropyParams<T>{.rows = count,
                                                 .classes = classes,
                                                 .logits = memory<T>(logits),
                                                 .stride = classes,
                                                 .count = classes,
                                                 .targets = memory<int64_t>(targets) + first,
                                                 .smoothing = static_cast<float>(smoothing),
                                                 .device_factor = memory<float>(factor),
                                                 .loss = memory<float>(loss) + first},
            gradient, stream);
      });
      if (!gradient) continue;
      Tensor d_h = d_hidden.narrow(0, first, count);
      at::mm_out(d_h, logits, weight);
      if (!weight_gradient) continue;
      if (first == 0)
        at::mm_out(d_weight, logits.t(), h);
      else
        d_weight.addmm_(logits.t(), h);
    }
    if (rows == 0 && weight_gradient) d_weight.zero_();
    kernels::cuda::sum(rows, memory<float>(loss), memory<float>(factor), memory<float>(mean),
                       stream);
    if (gradient) ctx->save_for_backward({d_hidden, d_weight});
    return mean;
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const variable_list saved = ctx->get_saved_variables();
    const auto times = [&](const Tensor& g) {
      return g.defined() ? g.mul(d[0].to(g.scalar_type())) : g;
    };
    return {times(saved[0]), times(saved[1]), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

bool has_kernels() { return true; }

bool takes(const Tensor& x, int64_t size) {
  // A tensor of a tracer has no memory; it sees the composition.
  return x.is_cuda() && !x.unsafeGetTensorImpl()->is_python_dispatch() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && size >= 8 &&
         size % 8 == 0;
}

NormedSum add_norm(const Tensor& any, const Tensor& any_residual, const Tensor& gain,
                   const Tensor& bias, double epsilon, bool centred) {
  const Tensor x = any.contiguous();
  const Tensor residual = any_residual.defined() ? any_residual.contiguous() : any_residual;
  if (!wants_gradient({x, residual, gain, bias})) {
    const NormPass n = norm_pass(x, residual, gain, bias, epsilon, centred);
    return {residual.defined() ? n.h : x, n.y};
  }
  const variable_list out =
      AddNormFunction::apply(x, maybe(residual), maybe(gain), maybe(bias), epsilon, centred);
  return {residual.defined() ? out[0] : x, out.back()};
}

Tensor swiglu(const Tensor& any) {
  const Tensor gate_up = any.contiguous();
  return wants_gradient({gate_up}) ? CudaSwigluFunction::apply(gate_up) : swiglu_rows(gate_up);
}

Tensor embedding(const Tensor& table, const Tensor& ids, at::ScalarType type) {
  return EmbeddingFunction::apply(table, ids, type);
}

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                            double label_smoothing) {
  return CudaCrossEntropyFunction::apply(
      hidden.contiguous(), weight.contiguous(), targets.to(at::kLong).contiguous(), label_smoothing,
      wants_gradient({hidden, weight}), wants_gradient({weight}));
}

}  // namespace tempera::ops::cuda
