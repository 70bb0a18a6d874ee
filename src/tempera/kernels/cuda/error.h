#pragma once

// What the launchers share. No header of the toolkit, so that the compiler of the host reads it
// too.
namespace tempera::kernels::cuda {

// Throws tempera::Error with CUDA's own words if the last launch of this thread failed.
void check_launch(const char* kernel);

}  // namespace tempera::kernels::cuda
