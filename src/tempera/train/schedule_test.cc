#include "tempera/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tempera::train {
namespace {

double at(const Schedule& schedule, int64_t step, int64_t steps) {
  return schedule.factor(step, static_cast<double>(step) / static_cast<double>(steps));
}

TEST(Schedule, CosineRisesToTheFullRateAndFallsToTheFloor) {
  const Schedule schedule{.shape = ScheduleShape::kCosine, .warmup = 50, .floor = 0.1};
  EXPECT_DOUBLE_EQ(at(schedule, 0, 300), 1.0 / 50);
  EXPECT_DOUBLE_EQ(at(schedule, 24, 300), 0.5);
  EXPECT_DOUBLE_EQ(at(schedule, 49, 300), 1);
  EXPECT_NEAR(at(schedule, 50, 300), 1, 1e-12);
  EXPECT_NEAR(at(schedule, 175, 300), 0.55, 1e-12);  // half way between 50 and 300
  EXPECT_NEAR(at(schedule, 300, 300), 0.1, 1e-12);
  EXPECT_NEAR(at(schedule, 112, 300), 0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI * (112.0 - 50) / 250)),
              1e-12);
}

TEST(Schedule, WsdIsConstantThenFallsInAStraightLine) {
  const Schedule schedule{.shape = ScheduleShape::kWsd, .warmup = 10, .floor = 0, .cooldown = 0.25};
  EXPECT_DOUBLE_EQ(at(schedule, 4, 100), 0.5);
  EXPECT_DOUBLE_EQ(at(schedule, 10, 100), 1);
  EXPECT_DOUBLE_EQ(at(schedule, 75, 100), 1);
  EXPECT_NEAR(at(schedule, 80, 100), 0.8, 1e-12);
  EXPECT_NEAR(at(schedule, 99, 100), 0.04, 1e-12);
}

TEST(Schedule, NoWarmUpAndWarmUpLongerThanTheRun) {
  EXPECT_DOUBLE_EQ(at({.shape = ScheduleShape::kCosine, .warmup = 0}, 0, 10), 1);
  EXPECT_DOUBLE_EQ(at({.shape = ScheduleShape::kConstant, .warmup = 0}, 9, 10), 1);
  const Schedule longer{.shape = ScheduleShape::kCosine, .warmup = 20};
  EXPECT_DOUBLE_EQ(at(longer, 9, 10), 0.5);
  const Schedule same{.shape = ScheduleShape::kCosine, .warmup = 10, .floor = 0.2};
  EXPECT_DOUBLE_EQ(same.factor(10, 1), 0.2);
}

}  // namespace
}  // namespace tempera::train
