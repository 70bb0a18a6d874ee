#include "tempera/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tempera::train {

void Schedule::declare(config::Options& options) {
  static const config::EnumChoices<ScheduleShape> kNames{{{"cosine", ScheduleShape::kCosine},
                                                          {"wsd", ScheduleShape::kWsd},
                                                          {"constant", ScheduleShape::kConstant}}};
  options.option("schedule", shape, kNames,
                 "learning-rate schedule after the warm-up; wsd: constant, then a linear decay");
  options.option("warmup", warmup, config::range(0, 1e9), "warm-up steps");
  options.option("floor", floor, config::range(0, 1), "final learning rate, as a share of the peak",
                 {.rare = true});
  options.option("cooldown", cooldown, config::above_to(0, 1), "wsd: share of the run that decays",
                 {.rare = true});
}

double Schedule::factor(int64_t step, double progress) const {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto fall = [&](double share) { return floor + (1 - floor) * share; };
  switch (shape) {
    case ScheduleShape::kConstant:
      return 1;
    case ScheduleShape::kWsd:
      return fall(std::clamp((1 - progress) / cooldown, 0.0, 1.0));
    case ScheduleShape::kCosine:
      break;
  }
  // The share of the budget that the warm-up took, at the pace so far: warmup / N for N steps.
  const double begin =
      step == 0 ? 0 : progress * static_cast<double>(warmup) / static_cast<double>(step);
  const double part = begin < 1 ? (progress - begin) / (1 - begin) : 1;
  return fall(0.5 * (1 + std::cos(std::numbers::pi * std::clamp(part, 0.0, 1.0))));
}

}  // namespace tempera::train
