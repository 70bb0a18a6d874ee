#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tempera/kernels/cuda/device_mirror.h"
#include "tempera/kernels/reference/numbers.h"

namespace tempera::kernels::cuda {

// Skips a test by name where there is no GPU.
#define TEMPERA_NEEDS_GPU()                                   \
  do {                                                        \
    const std::string why = why_no_device();                  \
    if (!why.empty()) GTEST_SKIP() << "needs a GPU: " << why; \
  } while (false)

}  // namespace tempera::kernels::cuda
