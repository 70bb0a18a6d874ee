#pragma once

#include <string>

struct CUstream_st;

namespace tempera::kernels::cuda {

// cudaStream_t, by a name that needs no header of the toolkit.
using Stream = CUstream_st*;

// Why no kernel can run here ("no GPU", in CUDA's words); empty where one can.
std::string why_no_device();

}  // namespace tempera::kernels::cuda
