#include "tempera/bench/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

namespace tempera::bench {
namespace {

// Torch's allocator reports here, also from the threads of an operator.
class Recorder final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, int64_t bytes, size_t /*total_allocated*/,
                         size_t /*total_reserved*/, c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    held_ += bytes;  // negative: given back
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  std::mutex mutex_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

// A line of /proc/self/status such as "VmRSS:     1234 kB".
int64_t status_bytes(std::string_view field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field)) return 1024 * std::stoll(line.substr(field.size()));
  return 0;
}

}  // namespace

int64_t peak_bytes(const std::function<void()>& work) {
  const auto recorder = std::make_shared<Recorder>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, recorder);
  work();
  return recorder->peak();
}

int64_t resident_bytes() { return status_bytes("VmRSS:"); }

ResidentPeak::ResidentPeak() {
  // 5: the kernel forgets the peak.
  std::ofstream("/proc/self/clear_refs") << 5;
}

int64_t ResidentPeak::bytes() const { return status_bytes("VmHWM:"); }

}  // namespace tempera::bench
