#include "tempera/models/device.h"

#include <cmath>
#include <exception>
#include <iostream>

#include "tempera/base/error.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

// Through a kernel of torch's, and one of ours where the program has some for this GPU.
void compute_a_little() {
  const auto ones = torch::ones({1, 8}, torch::kCUDA);
  const double sum = ops::norm(ones, {}, {}, /*epsilon=*/0, /*centred=*/false).sum().item<double>();
  TEMPERA_CHECK(std::abs(sum - 8) < 1e-3, "eight normed ones sum to ", sum);
}

}  // namespace

GpuTrial try_gpu(bool found, const std::function<void()>& compute) {
  if (!found) return {};
  try {
    compute();
    return {true, ""};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {true, text.substr(0, text.find('\n'))};  // behind it torch tells where it was called
  }
}

torch::Device choose_device(config::Device wanted, const GpuTrial& trial, std::ostream& say) {
  if (wanted == config::Device::kCpu) return torch::kCPU;
  const bool works = trial.found && trial.failure.empty();
  if (wanted == config::Device::kCuda) {
    TEMPERA_CHECK(trial.found,
                  "--device cuda given, but there is no GPU that torch can use; give --device cpu");
    TEMPERA_CHECK(works, "--device cuda given, but the GPU cannot compute (", trial.failure,
                  "); give --device cpu");
  }
  if (trial.found && !works)
    say << "computing on the CPU: the GPU cannot compute (" << trial.failure << ")" << std::endl;
  return works ? torch::kCUDA : torch::kCPU;
}

torch::Device resolve_device(config::Device device) {
  if (device == config::Device::kCpu) return torch::kCPU;
  static const GpuTrial trial = try_gpu(torch::cuda::is_available(), compute_a_little);
  if (device == config::Device::kCuda) return choose_device(device, trial, std::cerr);
  static const torch::Device automatic = choose_device(device, trial, std::cerr);  // says it once
  return automatic;
}

torch::ScalarType scalar_type(config::Dtype dtype) {
  return dtype == config::Dtype::kBfloat16 ? torch::kBFloat16 : torch::kFloat32;
}

std::optional<torch::ScalarType> cache_type(config::CacheDtype dtype, torch::ScalarType compute) {
  switch (dtype) {
    case config::CacheDtype::kAuto:
      return std::nullopt;
    case config::CacheDtype::kFloat32:
      if (compute == torch::kBFloat16)
        throw UsageError(
            "--cache-dtype fp32 given, but with --dtype bf16 keys and values are computed in bf16; "
            "give auto, bf16 or int8, or --dtype fp32");
      return torch::kFloat32;
    case config::CacheDtype::kBfloat16:
      return torch::kBFloat16;
    case config::CacheDtype::kInt8:
      return torch::kInt8;
  }
  return std::nullopt;
}

void use_threads(int64_t threads) {
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

void ComputeOptions::declare(config::Options& options) {
  config::device_option(options, device);
  config::dtype_option(options, dtype);
  config::threads_option(options, threads);
  options.option(
      "unpack", unpack,
      "unpack a GGUF file's quantised weights into --dtype (more memory); otherwise the CPU "
      "computes on them directly",
      {.local = true, .section = config::Section::kComputing});
}

}  // namespace tempera::models
