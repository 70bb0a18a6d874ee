#pragma once

#include <cstdint>

#include "tempera/dist/world.h"
#include "tempera/train/checkpoint.h"

namespace tempera::train {

// How fast each rank is, for the log: who is slow makes all wait.
class Pace {
 public:
  // `waited`: those of its seconds in which this rank has waited for others.
  void add_step(double seconds, double waited) {
    seconds_ += seconds;
    waited_ += waited;
    steps_ += 1;
  }
  // Of the steps since the last report; all ranks call it.
  //   rank_seconds   of a step: the slowest rank's own work and which that is, the median rank's,
  //                  and what the ranks waited for exchanges that no work hid, on average
  //   rank_memory    the most bytes that each rank's process has had
  Json report(dist::World& world);

 private:
  double seconds_ = 0;
  double waited_ = 0;
  int64_t steps_ = 0;
};

}  // namespace tempera::train
