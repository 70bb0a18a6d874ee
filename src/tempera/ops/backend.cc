#include "tempera/ops/backend.h"

#include "tempera/ops/composed/composed.h"
#include "tempera/ops/cpu/cpu.h"
#include "tempera/ops/cuda/cuda.h"

namespace tempera::ops {

const Backend& backend_of(const at::Tensor& x) {
  if (x.is_cpu()) return cpu_backend();
  if (x.is_cuda())
    if (const Backend* const kernels = cuda::backend_of(x.device())) return *kernels;
  return composed_backend();
}

}  // namespace tempera::ops
