#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tempera/ops/fused.h"
#include "tempera/ops/projected.h"
#include "tempera/ops/schema.h"

// What stands behind the operations of attention.h, projected.h, fused.h and linear.h, which check
// their arguments before they ask it.
namespace tempera::ops {

// Gain and bias: one number for each column; undefined: 1 and 0. Not centred: RMSNorm.
struct NormWeights {
  at::Tensor gain, bias;
  double epsilon = 0;
  bool centred = false;
};

struct AdamWState {
  at::Tensor parameter, gradient, mean, square;
};

// One for each kind of device. Everything but attention_forward and attention_backward is
// differentiable. A backend decides for itself which of its kernels, or of torch's operators, does
// the work.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual AttentionResult attention(const AttentionArgs& args) const = 0;
  virtual AttentionResult decode(const DecodeArgs& args) const = 0;
  virtual ProjectedResult attend(const ProjectedArgs& args, KeyCache* cache) const = 0;
  virtual void remember(const ProjectedArgs& args, KeyCache& cache) const = 0;

  virtual at::Tensor norm(const at::Tensor& x, const NormWeights& weights) const = 0;
  virtual NormedSum add_norm(const at::Tensor& x, const at::Tensor& residual,
                             const NormWeights& weights) const = 0;
  virtual at::Tensor swiglu(const at::Tensor& gate_up) const = 0;
  virtual at::Tensor gelu(const at::Tensor& x, bool by_tanh) const = 0;
  virtual at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids,
                               at::ScalarType type) const = 0;
  virtual at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            const at::Tensor& positions) const = 0;
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) const = 0;
  virtual at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                          const at::Tensor& targets, double label_smoothing,
                                          const at::Tensor& shares) const = 0;
  virtual void adamw(const AdamWState& state, const AdamWStep& step) const = 0;

  // Whether attention goes to a kernel; else it is a composition, which is differentiable by
  // itself.
  virtual bool has_kernel(const AttentionArgs& args) const = 0;
  // Below autograd, for the dispatcher. One gradient for each differentiable input; undefined
  // where it is not wanted.
  virtual AttentionResult attention_forward(const AttentionArgs& args) const = 0;
  virtual std::vector<at::Tensor> attention_backward(const BackwardArgs& args) const = 0;
};

const Backend& backend_of(const at::Tensor& x);

}  // namespace tempera::ops
