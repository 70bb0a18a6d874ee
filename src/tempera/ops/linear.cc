#include "tempera/ops/linear.h"

#include "tempera/kernels/matvec.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using at::Tensor;
using kernels::BFloat16;

// Up to so many rows the product is bound by reading the weight; docs/performance.md has the
// measurement against libtorch's.
constexpr int64_t kMostRows = 8;

bool is_supported(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

bool is_few_rows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1) &&
         x.numel() <= kMostRows * x.size(-1) && is_supported(x) && is_supported(weight) &&
         weight.stride(1) == 1 &&
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

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  RECORD_FUNCTION("tempera::linear", {});
  if (is_few_rows(x, weight, bias)) return few_rows(x, weight, bias);
  const auto type = x.scalar_type();
  if (!bias.defined()) return at::linear(x, weight.to(type));
  return at::linear(x, weight.to(type), bias.to(type));
}

}  // namespace tempera::ops
