#include "tempera/ops/linear.h"

#include "tempera/kernels/matvec.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/cpu/blocks.h"
#include "tempera/ops/cpu/cpu.h"
#include "tempera/ops/cpu/product.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using at::Tensor;
using kernels::BFloat16;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Up to so many rows the product is bound by reading the weight; docs/performance.md has the
// measurement against libtorch's.
constexpr int64_t kMostRows = 8;

bool is_supported(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

bool is_few_rows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1) &&
         (RowInvariance::wanted() || x.numel() <= kMostRows * x.size(-1)) && is_supported(x) &&
         is_supported(weight) && weight.stride(1) == 1 &&
         (!bias.defined() ||
          (bias.is_cpu() && bias.dim() == 1 && bias.size(0) == weight.size(0))) &&
         !wants_gradient({x, weight, bias});
}

template <class X, class W>
void multiply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  const int64_t inputs = weight.size(1), outputs = weight.size(0);
  AtenParallel parallel;
  kernels::matvec<X, W>({y.numel() / std::max<int64_t>(outputs, 1), inputs, outputs,
                         static_cast<const X*>(x.const_data_ptr()), inputs,
                         static_cast<const W*>(weight.const_data_ptr()), weight.stride(0),
                         static_cast<const W*>(bias.defined() ? bias.const_data_ptr() : nullptr),
                         static_cast<X*>(y.mutable_data_ptr()), outputs},
                        parallel);
}

Tensor few_rows(const Tensor& any, const Tensor& weight, const Tensor& any_bias) {
  const Tensor x = any.contiguous();
  const Tensor bias =
      any_bias.defined() ? any_bias.to(weight.scalar_type()).contiguous() : any_bias;
  at::DimVector sizes(x.sizes());
  sizes.back() = weight.size(0);
  const Tensor y = at::empty(sizes, x.options());
  const bool x_float = x.scalar_type() == at::kFloat;
  if (weight.scalar_type() == at::kFloat)
    x_float ? multiply<float, float>(x, weight, bias, y)
            : multiply<BFloat16, float>(x, weight, bias, y);
  else
    x_float ? multiply<float, BFloat16>(x, weight, bias, y)
            : multiply<BFloat16, BFloat16>(x, weight, bias, y);
  return y;
}

// As the product sees them: (..., columns) as (rows, columns).
Tensor as_matrix(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

bool is_many_rows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1) && weight.size(0) > 0 &&
         weight.size(1) > 0 && x.is_cpu() && weight.is_cpu() && x.scalar_type() == at::kFloat &&
         weight.scalar_type() == at::kFloat &&
         (!bias.defined() || (bias.is_cpu() && bias.scalar_type() == at::kFloat)) &&
         has_fast_product(x.numel() / weight.size(1), weight.size(0), weight.size(1));
}

Tensor many_rows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  at::DimVector sizes(x.sizes());
  sizes.back() = weight.size(0);
  const Tensor y = at::empty(sizes, x.options());
  cpu_backend().product_into(y.view({-1, weight.size(0)}), as_matrix(x), weight.t(), /*add=*/false);
  if (bias.defined()) y.add_(bias);
  return y;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Maybe& bias) {
    // The rows are kept for the gradient of the weight alone.
    context->save_for_backward({weight.requires_grad() ? x : Tensor(), weight});
    context->saved_data["bias"] = bias.has_value();
    return many_rows(x, weight, bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& weight = saved[1];
    const Tensor d_y = as_matrix(d[0]);
    variable_list results(3);
    if (context->needs_input_grad(0)) {
      at::DimVector sizes(d[0].sizes());
      sizes.back() = weight.size(1);
      results[0] = at::empty(sizes, d_y.options());
      cpu_backend().product_into(results[0].view({-1, weight.size(1)}), d_y, weight, /*add=*/false);
    }
    if (context->needs_input_grad(1)) {
      results[1] = at::empty_like(weight);
      cpu_backend().product_into(results[1], d_y.t(), as_matrix(saved[0]), /*add=*/false);
    }
    // An absent bias has no edge to ask about.
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2))
      results[2] = d_y.sum(0);
    return results;
  }
};

}  // namespace

Tensor Cpu::linear(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  if (const auto* blocks = blocks_of(weight))
    return linear_of_blocks(x, *blocks, weight.sizes(), bias);
  if (is_few_rows(x, weight, bias)) return few_rows(x, weight, bias);
  if (!is_many_rows(x, weight, bias)) return Composed::linear(x, weight, bias);
  return wants_gradient({x, weight, bias}) ? LinearFunction::apply(x, weight, maybe(bias))
                                           : many_rows(x, weight, bias);
}

}  // namespace tempera::ops
