#pragma once

#include "tempera/ops/cuda/cuda.h"
#include "tempera/ops/kernel_backend.h"

namespace tempera::ops::cuda {

// The kernels of kernels/cuda, and torch's fused attention behind the prologue for what is plain.
class Cuda final : public KernelBackend {
 public:
  Cuda();

  AttentionResult decode(const DecodeArgs& args) const override;
  ProjectedResult attend(const ProjectedArgs& args, KeyCache* cache) const override;
  bool has_kernel(const AttentionArgs& args) const override;
  AttentionResult attention_forward(const AttentionArgs& args) const override;
  std::vector<at::Tensor> attention_backward(const BackwardArgs& args) const override;

  at::Tensor gelu(const at::Tensor& x, bool by_tanh) const override;
  at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids,
                       at::ScalarType type) const override;
  at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& positions) const override;

 protected:
  void scale_rows(std::array<Tempered, 3>& parts, bool causal) const override;
  at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool causal, std::optional<double> scale) const override;

 private:
  // Whether the prologue takes rows of this size, of which so many columns rotate with another one.
  bool takes_prologue(const at::Tensor& x, int64_t size, int64_t pairs) const;
  bool takes_projection(const ProjectedArgs& args) const;
};

// Whether our attention takes these on the GPU of q: their type, and the shared memory that rows of
// this size need. Says once on stderr where that memory is too small.
bool fits(const AttentionArgs& args);
bool fits(const DecodeArgs& args);

// Whether cuDNN has the fastest plain attention for the GPU of this tensor: Hopper and later.
bool prefers_cudnn(const at::Tensor& x);

}  // namespace tempera::ops::cuda
