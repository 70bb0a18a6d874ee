#pragma once

#include <cstdint>

#include "tempera/config/options.h"

namespace tempera::train {

enum class ScheduleShape { kCosine, kWsd, kConstant };

// How the learning rate moves over a run: it rises over the first steps, and falls to a floor.
struct Schedule {
  ScheduleShape shape = ScheduleShape::kCosine;
  int64_t warmup = 100;   // steps
  double floor = 0.1;     // the last rate, as a share of the full one
  double cooldown = 0.2;  // WSD: the share of the run in which the rate falls

  void declare(config::Options& options);
  // The rate of a step as a share of the full one. `progress` is the share of the budget that is
  // spent before the step, in [0, 1]; for a budget of N steps it is step / N, so that the rate is a
  // function of the step alone.
  double factor(int64_t step, double progress) const;
};

}  // namespace tempera::train
