#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "tempera/config/common.h"

namespace tempera::models {

// What became of a first computation on the GPU.
struct GpuTrial {
  bool found = false;   // torch knows of a GPU
  std::string failure;  // what went wrong there; empty: nothing
};
// compute: throws where the GPU cannot do it.
GpuTrial try_gpu(bool found, const std::function<void()>& compute);

// `automatic` is a GPU that works, and says so where one does not. Throws where a GPU was asked for
// and none works.
torch::Device choose_device(config::Device wanted, const GpuTrial& trial, std::ostream& say);

// After a trial of this machine's GPU, which is made once.
torch::Device resolve_device(config::Device device);

torch::ScalarType scalar_type(config::Dtype dtype);
// None: that of the computation. Throws UsageError where the cache would have more bits than it.
std::optional<torch::ScalarType> cache_type(config::CacheDtype dtype, torch::ScalarType compute);

// For this thread and those it starts. 0: torch's own choice, one for each core.
void use_threads(int64_t threads);

// What a verb that opens a model asks for.
struct ComputeOptions {
  config::Device device = config::Device::kAuto;
  config::Dtype dtype = config::Dtype::kFloat32;
  config::CacheDtype cache_dtype = config::CacheDtype::kAuto;  // of verbs that declare it
  int64_t threads = 0;
  bool unpack = false;

  void declare(config::Options& options);
};

}  // namespace tempera::models
