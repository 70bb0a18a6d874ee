#pragma once

#include <cstdint>
#include <functional>

namespace tempera::bench {

// The most bytes that the work holds at once of what it allocates itself through torch: workspaces,
// saved tensors, outputs and gradients. What lay there before does not count.
int64_t peak_bytes(const std::function<void()>& work);

// Bytes of memory that the process has now, files that it has mapped and used included.
int64_t resident_bytes();

// The most that the process had since this was made; one at a time.
class ResidentPeak {
 public:
  ResidentPeak();
  int64_t bytes() const;
};

}  // namespace tempera::bench
