#include "tempera/train/bucket_plan.h"

#include <gtest/gtest.h>

#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

std::vector<nn::NamedParameter> some_parameters() {
  using Kind = nn::ParameterKind;
  std::vector<nn::NamedParameter> list;
  const auto add = [&](std::vector<int64_t> shape, Kind kind) {
    list.push_back({std::to_string(list.size()), torch::zeros(shape), kind});
  };
  add({50, 8}, Kind::kEmbedding);
  for (int layer = 0; layer < 5; ++layer) {
    add({8, 24}, Kind::kMatrix);
    add({8, 8}, Kind::kMatrix);
    add({8}, Kind::kVector);
    add({}, Kind::kTemperature);
  }
  return list;
}

class Plans : public testing::TestWithParam<std::tuple<int64_t, bool>> {};

TEST_P(Plans, EveryNumberHasOnePlace) {
  const auto [ranks, whole] = GetParam();
  const auto parameters = some_parameters();
  const auto plans =
      plan_buckets(parameters, {.ranks = ranks, .whole_matrices = whole, .elements = 300});
  EXPECT_GT(plans.size(), 3U);
  std::vector<int> found(parameters.size());
  for (const BucketPlan& plan : plans) {
    EXPECT_EQ(plan.length % ranks, 0);
    std::vector<bool> taken(static_cast<size_t>(plan.length));
    for (const Place& place : plan.places) {
      found[place.parameter] += 1;
      EXPECT_EQ(place.length, parameters[place.parameter].tensor.numel());
      ASSERT_LE(place.begin + place.length, plan.length);
      for (int64_t i = 0; i < place.length; ++i) {
        EXPECT_FALSE(taken[static_cast<size_t>(place.begin + i)]);
        taken[static_cast<size_t>(place.begin + i)] = true;
      }
      if (!whole || !is_hidden_matrix(parameters[place.parameter])) continue;
      const int64_t part = plan.length / ranks;
      EXPECT_EQ(place.begin / part, (place.begin + place.length - 1) / part);
    }
  }
  EXPECT_EQ(found, std::vector<int>(parameters.size(), 1));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Plans,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool()));

TEST(BucketPlan, WhatTheBackwardPassCompletesFirstComesFirst) {
  const auto parameters = some_parameters();
  const auto plans = plan_buckets(parameters, {.ranks = 2, .elements = 300});
  size_t last = parameters.size();
  for (const BucketPlan& plan : plans)
    for (const Place& place : plan.places) {
      EXPECT_LT(place.parameter, last);
      last = place.parameter;
    }
}

TEST(BucketPlan, EveryBlockHasBucketsOfItsOwn) {
  const auto parameters = some_parameters();
  std::vector<int64_t> blocks(parameters.size(), -1);
  for (size_t i = 1; i < parameters.size(); ++i) blocks[i] = static_cast<int64_t>(i - 1) / 4;
  for (const bool whole : {false, true}) {
    const auto plans =
        plan_buckets(parameters, {.ranks = 2, .whole_matrices = whole, .blocks = blocks});
    EXPECT_EQ(plans.size(), whole ? 11U : 6U);
    EXPECT_EQ(plans.front().block, 4);
    EXPECT_EQ(plans.back().block, -1);
    size_t places = 0;
    for (const BucketPlan& plan : plans)
      for (const Place& place : plan.places) {
        EXPECT_EQ(blocks[place.parameter], plan.block);
        places += 1;
      }
    EXPECT_EQ(places, parameters.size());
  }
}

}  // namespace
}  // namespace tempera::train
