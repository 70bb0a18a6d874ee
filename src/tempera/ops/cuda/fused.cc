#include "tempera/kernels/cuda/fused.h"

#include <algorithm>

#include "tempera/ops/autograd.h"
#include "tempera/ops/cuda/backend.h"
#include "tempera/ops/cuda/stream.h"
#include "tempera/ops/problem.h"
#include "tempera/ops/torch.h"

namespace tempera::ops::cuda {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <class T>
kernels::cuda::ActivationParams<T> swiglu_params(const Tensor& gate_up) {
  return {.kind = kernels::cuda::Activation::kSilu,
          .gated = true,
          .rows = row_count(gate_up),
          .size = gate_up.size(-1) / 2,
          .x = memory<T>(gate_up)};
}

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
          kernels::cuda::EmbeddingGradient<T>{.rows = ids.numel(),
                                              .size = d_y.size(-1),
                                              .classes = classes,
                                              .ids = memory<int64_t>(ids),
                                              .d_y = memory<T>(d_y),
                                              .d_table = memory<float>(result)},
          workspace.mutable_data_ptr(), stream_of(d_y));
    });
    return {result, Tensor(), Tensor()};
  }
};

template <class T>
kernels::cuda::ActivationParams<T> gelu_params(const Tensor& x, bool by_tanh) {
  using kernels::cuda::Activation;
  return {.kind = by_tanh ? Activation::kGeluTanh : Activation::kGelu,
          .rows = row_count(x),
          .size = x.size(-1),
          .x = memory<T>(x)};
}

Tensor gelu_rows(const Tensor& x, bool by_tanh) {
  const Tensor y = at::empty_like(x);
  for_storage(x, [&]<class T>(T*) {
    kernels::cuda::activation_forward(gelu_params<T>(x, by_tanh), memory<T>(y), stream_of(y));
  });
  return y;
}

struct GeluFunction : Function<GeluFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, bool by_tanh) {
    ctx->save_for_backward({x});
    ctx->saved_data["by_tanh"] = by_tanh;
    return gelu_rows(x, by_tanh);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const Tensor x = ctx->get_saved_variables()[0];
    const Tensor d_y = d[0].contiguous(), result = at::empty_like(x);
    for_storage(x, [&]<class T>(T*) {
      kernels::cuda::activation_backward(gelu_params<T>(x, ctx->saved_data["by_tanh"].toBool()),
                                         memory<T>(d_y), memory<T>(result), stream_of(x));
    });
    return {result, Tensor()};
  }
};

void norm_forward(const NormInputs& in, const NormOutputs& out) {
  for_storage(in.x, [&]<class T>(T*) {
    kernels::cuda::norm_forward(norm_params<T>(in), norm_outputs<T>(out), stream_of(in.x));
  });
}

void norm_backward(const NormInputs& in, const NormGradients& g) {
  const Tensor workspace = byte_workspace(
      kernels::cuda::norm_backward_workspace(row_count(in.x), in.x.size(-1)), in.x.device());
  for_storage(in.x, [&]<class T>(T*) {
    kernels::cuda::norm_backward(norm_params<T>(in), norm_gradients<T>(g),
                                 workspace.mutable_data_ptr(), stream_of(in.x));
  });
}

void swiglu_forward(const Tensor& gate_up, const Tensor& y) {
  for_storage(y, [&]<class T>(T*) {
    kernels::cuda::activation_forward(swiglu_params<T>(gate_up), memory<T>(y), stream_of(y));
  });
}

void swiglu_backward(const Tensor& gate_up, const Tensor& d_y, const Tensor& d_gate_up) {
  for_storage(d_y, [&]<class T>(T*) {
    kernels::cuda::activation_backward(swiglu_params<T>(gate_up), memory<T>(d_y),
                                       memory<T>(d_gate_up), stream_of(d_y));
  });
}

int64_t logit_rows(int64_t rows, int64_t classes) {
  // As few parts as fit, of the same size.
  constexpr int64_t kLogitsAtOnce = 1 << 29;
  const int64_t parts = std::max<int64_t>((rows * classes + kLogitsAtOnce - 1) / kLogitsAtOnce, 1);
  const int64_t each = (rows + parts - 1) / parts;
  return std::max<int64_t>((each + 127) / 128 * 128, 128);
}

Tensor target_factor(const Tensor& targets) {
  const Tensor factor = at::empty({}, targets.options().dtype(at::kFloat));
  kernels::cuda::target_factor(targets.numel(), memory<int64_t>(targets), memory<float>(factor),
                               stream_of(targets));
  return factor;
}

void cross_entropy(const LossInputs& in, const Tensor& loss, bool gradient) {
  for_storage(in.logits, [&]<class T>(T*) {
    kernels::cuda::cross_entropy(
        kernels::CrossEntropyParams<T>{.rows = in.logits.size(0),
                                       .classes = in.logits.size(1),
                                       .logits = memory<T>(in.logits),
                                       .targets = memory<int64_t>(in.targets),
                                       .smoothing = static_cast<float>(in.smoothing),
                                       .loss = memory<float>(loss),
                                       .gradient = gradient},
        memory<float>(in.factor), stream_of(in.logits));
  });
}

Tensor scaled_sum(const Tensor& loss, const Tensor& factor) {
  const Tensor sum = at::empty({}, loss.options());
  kernels::cuda::sum(loss.numel(), memory<float>(loss), memory<float>(factor), memory<float>(sum),
                     stream_of(loss));
  return sum;
}

bool takes_rows(const Tensor& x, int64_t columns) {
  // A tensor of a tracer has no memory; it sees the composition.
  return !x.unsafeGetTensorImpl()->is_python_dispatch() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         kernels::cuda::takes_columns(columns);
}

bool takes_norm(const Tensor& x) {
  return takes_rows(x, x.size(-1)) && x.size(-1) <= kernels::cuda::kWidestNorm;
}

// In the order of their declaration; every one has a type of its own.
constexpr Passes kPasses{takes_rows,      takes_norm, norm_forward,  norm_backward, swiglu_forward,
                         swiglu_backward, logit_rows, target_factor, cross_entropy, scaled_sum};

}  // namespace

Cuda::Cuda() : KernelBackend(kPasses) {}

Tensor Cuda::gelu(const Tensor& x, bool by_tanh) const {
  if (!takes_rows(x, x.size(-1))) return Composed::gelu(x, by_tanh);
  const Tensor rows = x.contiguous();
  return wants_gradient({rows}) ? GeluFunction::apply(rows, by_tanh) : gelu_rows(rows, by_tanh);
}

Tensor Cuda::embedding(const Tensor& table, const Tensor& ids, at::ScalarType type) const {
  if (!wants_gradient({table}) || !takes_rows(table, table.size(-1)) ||
      (type != at::kFloat && type != at::kBFloat16))
    return Composed::embedding(table, ids, type);
  return EmbeddingFunction::apply(table, ids, type);
}

}  // namespace tempera::ops::cuda
