#pragma once

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include "tempera/kernels/cuda/stream.h"

namespace tempera::ops::cuda {

inline kernels::cuda::Stream stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

}  // namespace tempera::ops::cuda
