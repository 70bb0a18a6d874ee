#include <limits>

#include "tempera/kernels/reference.h"
#include "tempera/ops/attention_problem.h"
#include "tempera/ops/parallel.h"

namespace tempera::ops {
namespace {

template <class T>
void run_forward(const kernels::AttentionParams<T>& params,
                 const kernels::AttentionOutputs<T>& outputs) {
  if constexpr (std::is_same_v<T, double>) {
    kernels::reference::forward(params, outputs);
  } else {
    AtenParallel parallel;
    const at::Tensor workspace =
        byte_workspace(kernels::attention_forward_workspace(params, parallel.workers()), at::kCPU);
    kernels::attention_forward(params, outputs, parallel, workspace.mutable_data_ptr());
  }
}

template <class T>
void run_backward(const kernels::AttentionParams<T>& params,
                  const kernels::AttentionGradients<T>& gradients) {
  if constexpr (std::is_same_v<T, double>) {
    kernels::reference::backward(params, gradients);
  } else {
    AtenParallel parallel;
    const at::Tensor workspace = byte_workspace(
        kernels::attention_backward_workspace(params, gradients, parallel.workers()), at::kCPU);
    kernels::attention_backward(params, gradients, parallel, workspace.mutable_data_ptr());
  }
}

}  // namespace

void fill_empty(const AttentionResult& result) {
  const double none = -std::numeric_limits<double>::infinity();
  result.out.zero_();
  result.lse.fill_(none);
  if (result.max.defined()) result.max.fill_(none);
  if (result.entropy.defined()) result.entropy.zero_();
  if (result.head_max.defined()) result.head_max.fill_(none);
}

AttentionResult attention_cpu(const AttentionArgs& args) {
  return attention_with(args, []<class T>(const kernels::AttentionParams<T>& params,
                                          const kernels::AttentionOutputs<T>& outputs) {
    run_forward(params, outputs);
  });
}

std::vector<at::Tensor> attention_backward_cpu(const BackwardArgs& args) {
  return attention_backward_with(args,
                                 []<class T>(const kernels::AttentionParams<T>& params,
                                             const kernels::AttentionGradients<T>& gradients) {
                                   run_backward(params, gradients);
                                 });
}

}  // namespace tempera::ops
