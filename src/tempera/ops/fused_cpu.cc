#include <algorithm>

#include "tempera/ops/fused_passes.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace cpu {
namespace {

using at::Tensor;

void norm_forward(const NormInputs& in, const NormOutputs& out) {
  AtenParallel parallel;
  for_storage(in.x, [&]<class T>(T*) {
    kernels::norm_forward(norm_params<T>(in), memory<T>(out.h), memory<T>(out.y),
                          memory<float>(out.mean), memory<float>(out.rstd), parallel);
  });
}

void norm_backward(const NormInputs& in, const NormGradients& g) {
  const Tensor workspace = at::empty({kernels::norm_backward_workspace(in.x.size(-1))}, at::kFloat);
  AtenParallel parallel;
  for_storage(in.x, [&]<class T>(T*) {
    kernels::norm_backward(norm_params<T>(in), memory<float>(g.mean), memory<float>(g.rstd),
                           memory<T>(g.d_y), memory<T>(g.d_h), memory<T>(g.d_x),
                           memory<float>(g.d_gain), memory<float>(g.d_bias), parallel,
                           memory<float>(workspace));
  });
}

void swiglu_forward(const Tensor& gate_up, const Tensor& y) {
  AtenParallel parallel;
  for_storage(y, [&]<class T>(T*) {
    kernels::swiglu_forward(row_count(y), y.size(-1), memory<T>(gate_up), memory<T>(y), parallel);
  });
}

void swiglu_backward(const Tensor& gate_up, const Tensor& d_y, const Tensor& d_gate_up) {
  AtenParallel parallel;
  for_storage(d_y, [&]<class T>(T*) {
    kernels::swiglu_backward(row_count(d_y), d_y.size(-1), memory<T>(gate_up), memory<T>(d_y),
                             memory<T>(d_gate_up), parallel);
  });
}

int64_t logit_rows(int64_t /*rows*/, int64_t classes) {
  // Few enough for the cache, but no fewer rows than a product needs to be fast.
  constexpr int64_t kLogitsAtOnce = 4 << 20, kLeastRows = 512;
  return std::max(kLogitsAtOnce / std::max<int64_t>(classes, 1), kLeastRows);
}

Tensor target_factor(const Tensor& targets) {
  const auto counted = targets.ge(0).sum().item<int64_t>();
  return at::scalar_tensor(1.0F / static_cast<float>(std::max<int64_t>(counted, 1)), at::kFloat);
}

void cross_entropy(const LossInputs& in, const Tensor& loss, bool gradient) {
  AtenParallel parallel;
  for_storage(in.logits, [&]<class T>(T*) {
    kernels::cross_entropy(
        kernels::CrossEntropyParams<T>{in.logits.size(0), in.logits.size(1), memory<T>(in.logits),
                                       memory<int64_t>(in.targets),
                                       static_cast<float>(in.smoothing), *memory<float>(in.factor),
                                       memory<float>(loss), gradient},
        parallel);
  });
}

Tensor scaled_sum(const Tensor& loss, const Tensor& factor) { return loss.sum().mul_(factor); }

}  // namespace
}  // namespace cpu

const FusedPasses kCpuPasses = {cpu::norm_forward,    cpu::norm_backward, cpu::swiglu_forward,
                                cpu::swiglu_backward, cpu::logit_rows,    cpu::target_factor,
                                cpu::cross_entropy,   cpu::scaled_sum};

}  // namespace tempera::ops
