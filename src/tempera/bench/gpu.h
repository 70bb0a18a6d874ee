#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

// What benchmarks on a GPU share.
namespace tempera::bench {

// Seconds of work that waits for the GPU at its end.
double gpu_seconds(const std::function<void()>& work);

struct GpuCeilings {
  double matmul_flops = 0;  // a second, bfloat16, 8192 x 8192 x 8192
  double copy_bytes = 0;    // a second, read and written
};
GpuCeilings measure_gpu_ceilings();

nlohmann::ordered_json gpu_description(const GpuCeilings& ceilings);
std::string gpu_text(const GpuCeilings& ceilings);

struct KernelTime {
  int64_t calls = 0;
  double seconds = 0;
};
// What the GPU does in some work, by the kernels' names.
std::map<std::string, KernelTime> kernel_times(const std::function<void()>& work);
// The part of a training step that a kernel of this name does.
std::string part_of_kernel(const std::string& name);

}  // namespace tempera::bench
