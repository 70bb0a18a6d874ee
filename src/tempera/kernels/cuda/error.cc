#include "tempera/kernels/cuda/error.h"

#include <cuda_runtime_api.h>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/stream.h"

namespace tempera::kernels::cuda {

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  TEMPERA_CHECK(status == cudaSuccess, "the CUDA kernel ", kernel,
                " could not be started: ", cudaGetErrorString(status));
}

std::string why_no_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return count > 0 ? "" : "no CUDA device";
}

}  // namespace tempera::kernels::cuda
