#pragma once

#include <cstdint>

#include "tempera/config/options.h"

namespace tempera::dist {

enum class BackendChoice { kAuto, kGloo, kNccl };

// How ranks work together. None of it changes a result but for the last digits of sums.
struct Options {
  int64_t ranks = 0;  // processes to start here; 0: as the environment says
  BackendChoice backend = BackendChoice::kAuto;
  double timeout = 300;  // seconds for the slowest rank
  bool log_ranks = false;

  void declare(config::Options& options);
};

}  // namespace tempera::dist
