#include "tempera/bench/gpu.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/version.h>

#include <set>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/timing.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

constexpr int64_t kMatmulSize = 8192;
constexpr int64_t kCopyNumbers = 1LL << 29;
constexpr int kRuns = 10;

double median_seconds(const std::function<void()>& work) {
  std::vector<double> samples;
  for (int run = 0; run < 3; ++run) gpu_seconds(work);
  for (int run = 0; run < kRuns; ++run) samples.push_back(gpu_seconds(work));
  return spread_of(std::move(samples)).median;
}

}  // namespace

double gpu_seconds(const std::function<void()>& work) {
  torch::cuda::synchronize();
  return seconds_of([&] {
    work();
    torch::cuda::synchronize();
  });
}

GpuCeilings measure_gpu_ceilings() {
  const auto options = torch::dtype(torch::kBFloat16).device(torch::kCUDA);
  GpuCeilings ceilings;
  {
    const auto a = torch::randn({kMatmulSize, kMatmulSize}, options), b = torch::randn_like(a);
    auto c = torch::empty_like(a);
    const auto size = static_cast<double>(kMatmulSize);
    ceilings.matmul_flops =
        2 * size * size * size / median_seconds([&] { torch::matmul_out(c, a, b); });
  }
  const auto from = torch::randn({kCopyNumbers}, options);
  const auto to = torch::empty_like(from);
  ceilings.copy_bytes =
      2 * static_cast<double>(from.nbytes()) / median_seconds([&] { to.copy_(from); });
  return ceilings;
}

nlohmann::ordered_json gpu_description(const GpuCeilings& ceilings) {
  return {{"torch", TORCH_VERSION},
          {"matmul_tflops", ceilings.matmul_flops / 1e12},
          {"copy_tbps", ceilings.copy_bytes / 1e12}};
}

std::string gpu_text(const GpuCeilings& ceilings) {
  return concat("torch ", TORCH_VERSION, ", matmul ceiling ",
                fixed(ceilings.matmul_flops / 1e12, 0), " TFLOP/s, copies ",
                fixed(ceilings.copy_bytes / 1e12, 2), " TB/s");
}

std::map<std::string, KernelTime> kernel_times(const std::function<void()>& work) {
  namespace profiler = torch::profiler::impl;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU,
                                                       profiler::ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  work();
  torch::cuda::synchronize();
  const auto result = torch::autograd::profiler::disableProfiler();
  std::map<std::string, KernelTime> times;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    KernelTime& time = times[event.name()];
    ++time.calls;
    time.seconds += static_cast<double>(event.durationNs()) / 1e9;
  }
  return times;
}

std::string part_of_kernel(const std::string& name) {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> kParts = {
      {"attention", {"cudnn", "flash", "fmha"}},
      {"prologue", {"PrologueParams"}},
      {"cross-entropy", {"CrossEntropyParams", "target_factor"}},
      {"AdamW, norm of gradients", {"adamw", "square_kernel", "norm_kernel"}},
      {"residual and norm", {"NormParams"}},
      {"SwiGLU", {"ActivationParams"}},
      {"embedding", {"Embedding", "RadixSort", "indexSelect", "cuda::(anonymous namespace)::key"}},
      {"sums of partial gradients", {"tempera::kernels::cuda"}},
      {"matrix products", {"gemm", "nvjet", "cutlass", "xmma", "splitK", "cublas"}},
      {"casts, residual sums", {"elementwise", "at::native"}},
      {"copies, fills", {"Memcpy", "Memset"}},
  };
  for (const auto& [part, words] : kParts)
    for (const auto& word : words)
      if (name.find(word) != std::string::npos) return part;
  return "rest";
}

}  // namespace tempera::bench
