#include "tempera/bench/machine.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "tempera/bench/timing.h"
#include "tempera/kernels/cpu/isa.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

constexpr int64_t kMatmulSize = 2048;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// Independent sums, so that the additions do not wait for each other.
uint64_t sum_words(const uint64_t* words, int64_t count) {
  std::array<uint64_t, 8> sums = {};
  for (int64_t i = 0; i + 8 <= count; i += 8)
    for (int64_t k = 0; k < 8; ++k) sums[static_cast<size_t>(k)] += words[i + k];
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

int64_t uncached_bytes() {
  const int64_t cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  return std::clamp<int64_t>(4 * cache, 256LL << 20, 1LL << 30);
}

MatmulCeiling::MatmulCeiling(torch::ScalarType type)
    : a_(torch::randn({kMatmulSize, kMatmulSize}).to(type)),
      b_(torch::randn({kMatmulSize, kMatmulSize}).to(type)),
      c_(torch::empty_like(a_)) {
  torch::matmul_out(c_, a_, b_);
}

void MatmulCeiling::sample() {
  seconds_.push_back(seconds_of([&] { torch::matmul_out(c_, a_, b_); }));
}

double MatmulCeiling::gflops() const {
  const auto size = static_cast<double>(kMatmulSize);
  return 2 * size * size * size / spread_of(seconds_).median / 1e9;
}

ReadSweep::ReadSweep() : buffer_(torch::ones({uncached_bytes() / 8}, torch::kInt64)) {}

void ReadSweep::run() {
  ops::AtenParallel parallel;
  const int64_t tasks = 16 * parallel.workers();
  const int64_t share = buffer_.numel() / tasks;
  std::vector<uint64_t> sums(static_cast<size_t>(tasks));
  const auto* words = reinterpret_cast<const uint64_t*>(buffer_.const_data_ptr<int64_t>());
  parallel.run(tasks, [&](int64_t task, int) {
    sums[static_cast<size_t>(task)] = sum_words(words + task * share, share);
  });
  for (const uint64_t sum : sums) sum_ += sum;
}

double ReadSweep::gbps(double seconds) const {
  return static_cast<double>(buffer_.nbytes()) / seconds / 1e9;
}

void ReadSweep::copy() {
  const int64_t half = buffer_.numel() / 2;
  buffer_.narrow(0, half, half).copy_(buffer_.narrow(0, 0, half));
}

nlohmann::ordered_json machine_description() {
  return {{"processor", processor_name()},
          {"isa", kernels::cpu::selected_isa()},
          {"threads", at::get_num_threads()},
          {"torch", TORCH_VERSION}};
}

}  // namespace tempera::bench
