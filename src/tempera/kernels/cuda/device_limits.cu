#include <cuda_runtime.h>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/device_limits.h"

namespace tempera::kernels::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

DeviceLimits device_limits(int device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();  // or the next launch would be blamed
    return {};
  }
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device);
  cudaFuncAttributes code{};
  const bool has_code = cudaFuncGetAttributes(&code, probe_kernel) == cudaSuccess;
  cudaSetDevice(before);
  cudaGetLastError();
  return {concat(properties.name, " (sm_", properties.major, properties.minor, ")"), has_code,
          static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
}

}  // namespace tempera::kernels::cuda
