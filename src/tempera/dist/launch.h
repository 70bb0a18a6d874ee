#pragma once

#include <cstdint>

#include "tempera/base/error.h"

namespace tempera::dist {

// A run of ranks ended with this exit code, for reasons that were said.
class RanksFailed : public Error {
 public:
  explicit RanksFailed(int code) : Error("the ranks failed"), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// Starts this program again as so many ranks on this machine, with the same arguments, passes
// signals on to them and waits for all. One that fails ends the others. Throws RanksFailed with the
// exit code of the rank that failed first, 128 + its number where a signal killed it.
void run_ranks(int64_t ranks);

}  // namespace tempera::dist
