#include "tempera/kernels/reference/attention.h"

#include "tempera/ops/attention_problem.h"
#include "tempera/ops/cpu/cpu.h"
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

const Cpu& cpu_backend() {
  static const Cpu backend;
  return backend;
}

bool Cpu::has_kernel(const AttentionArgs& /*args*/) const { return true; }

AttentionResult Cpu::attention_forward(const AttentionArgs& args) const {
  return attention_with(args, []<class T>(const kernels::AttentionParams<T>& params,
                                          const kernels::AttentionOutputs<T>& outputs) {
    run_forward(params, outputs);
  });
}

std::vector<at::Tensor> Cpu::attention_backward(const BackwardArgs& args) const {
  return attention_backward_with(args,
                                 []<class T>(const kernels::AttentionParams<T>& params,
                                             const kernels::AttentionGradients<T>& gradients) {
                                   run_backward(params, gradients);
                                 });
}

}  // namespace tempera::ops
