#pragma once

#include "tempera/ops/kernel_backend.h"

namespace tempera::ops {

// The kernels of kernels/cpu, for float32 and bfloat16; attention in float64 goes to the naive
// reference, everything else there to torch's operators.
class Cpu final : public KernelBackend {
 public:
  AttentionResult decode(const DecodeArgs& args) const override;
  bool has_kernel(const AttentionArgs& args) const override;
  AttentionResult attention_forward(const AttentionArgs& args) const override;
  std::vector<at::Tensor> attention_backward(const BackwardArgs& args) const override;

  at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& positions) const override;
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias) const override;
  void adamw(const AdamWState& state, const AdamWStep& step) const override;

  bool takes_rows(const at::Tensor& x, int64_t columns) const override;
  bool takes_norm(const at::Tensor& x) const override;
  void norm_forward(const NormInputs& in, const NormOutputs& out) const override;
  void norm_backward(const NormInputs& in, const NormGradients& gradients) const override;
  void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& y) const override;
  void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& d_y,
                       const at::Tensor& d_gate_up) const override;
  int64_t logit_rows(int64_t rows, int64_t classes) const override;
  at::Tensor target_factor(const at::Tensor& targets) const override;
  void cross_entropy(const LossInputs& in, const at::Tensor& loss, bool gradient) const override;
  at::Tensor scaled_sum(const at::Tensor& loss, const at::Tensor& factor) const override;
  void product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                    bool add) const override;
};

const Cpu& cpu_backend();

}  // namespace tempera::ops
