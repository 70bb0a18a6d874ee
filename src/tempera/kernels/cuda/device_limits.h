#pragma once

#include <cstdint>
#include <string>

// Whether the kernels of this library run on a GPU. No header of the toolkit, as in stream.h.
namespace tempera::kernels::cuda {

struct DeviceLimits {
  std::string name;          // of the GPU, with its architecture
  bool has_code = false;     // this library holds machine code for it, or code to make some of
  int64_t shared_bytes = 0;  // of a block, at the most
};

// Asks the driver, which takes a while the first time.
DeviceLimits device_limits(int device);

// Whether a kernel with so much dynamic shared memory can start. Kernels have a little static
// memory beside it.
constexpr int64_t kStaticBytes = 256;
inline bool fits(int64_t shared_bytes, const DeviceLimits& limits) {
  return limits.has_code && shared_bytes + kStaticBytes <= limits.shared_bytes;
}

}  // namespace tempera::kernels::cuda
