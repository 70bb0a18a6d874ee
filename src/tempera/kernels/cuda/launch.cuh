#pragma once

#include <cuda_runtime.h>

#include "tempera/kernels/cuda/stream.h"

// Launches that overlap the end of the kernel before them: what it takes to bring a kernel onto the
// GPU, a microsecond or two, is spent while the other one still runs.
namespace tempera::kernels::cuda {

// What a kernel that launch_ahead starts calls before it touches memory: earlier kernels are done.
__device__ inline void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may come as soon as every block has said so, if launch_ahead starts it.
__device__ inline void admit_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// In the usual way where the kernel's code is too old to wait.
template <class... Params, class... Args>
void launch_ahead(void (*kernel)(Params...), dim3 grid, dim3 block, Stream stream,
                  const Args&... args) {
  cudaFuncAttributes code{};
  const bool waits = cudaFuncGetAttributes(&code, kernel) == cudaSuccess && code.ptxVersion >= 90;
  cudaLaunchAttribute ahead{};
  ahead.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  ahead.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  config.attrs = &ahead;
  config.numAttrs = waits ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace tempera::kernels::cuda
