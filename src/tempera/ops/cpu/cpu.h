#pragma once

#include "tempera/ops/kernel_backend.h"

namespace tempera::ops {

// The kernels of kernels/cpu, for float32 and bfloat16; attention in float64 goes to the naive
// reference, everything else there to torch's operators.
class Cpu final : public KernelBackend {
 public:
  Cpu();

  AttentionResult decode(const DecodeArgs& args) const override;
  bool has_kernel(const AttentionArgs& args) const override;
  AttentionResult attention_forward(const AttentionArgs& args) const override;
  std::vector<at::Tensor> attention_backward(const BackwardArgs& args) const override;

  at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids,
                       at::ScalarType type) const override;
  at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& positions) const override;
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias) const override;
  void adamw(const AdamWState& state, const AdamWStep& step) const override;
  void product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                    bool add) const override;

 protected:
  Quantized quantized(const at::Tensor& rows) const override;
};

const Cpu& cpu_backend();

}  // namespace tempera::ops
