#pragma once

#include <cstdint>
#include <functional>

namespace tempera::bench {

// The most bytes that the work holds at once of what it allocates itself through torch: workspaces,
// saved tensors, outputs and gradients. What lay there before does not count.
int64_t peak_bytes(const std::function<void()>& work);

}  // namespace tempera::bench
