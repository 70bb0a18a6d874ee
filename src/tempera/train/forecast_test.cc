#include "tempera/train/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tempera/dist/testing.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"
#include "tempera/train/parallel.h"

namespace tempera::train {
namespace {

nn::ModelConfig model_of(int64_t layers) {
  nn::ModelConfig config = nn::tiny_config();
  config.layers = layers;
  config.tied_embeddings = false;
  return config;
}

TrainOptions some_rows(int64_t rows) {
  TrainOptions options;
  options.batch = rows;
  return options;
}

const Forecast& of(const std::vector<Forecast>& all, Sharding sharding, bool recompute = false) {
  return *std::ranges::find_if(all, [&](const Forecast& one) {
    return one.sharding == sharding && one.recompute == recompute;
  });
}

TEST(Forecast, MatricesAreCountedBeforeTheyAreMade) {
  for (const nn::Activation activation : {nn::Activation::kSwiglu, nn::Activation::kGelu}) {
    nn::ModelConfig config = model_of(3);
    config.activation = activation;
    config.kv_heads = 1;
    double elements = 0;
    for (const auto& parameter : nn::make_empty_model(config)->parameter_list())
      if (parameter.tensor.dim() == 2) elements += static_cast<double>(parameter.tensor.numel());
    EXPECT_EQ(matrix_elements(config), elements);
  }
}

TEST(Forecast, ARankAloneSendsNothingAndEveryoneComputes) {
  const auto model = nn::make_empty_model(model_of(3));
  const auto all = forecasts(*model, some_rows(4), {.ranks = 1});
  ASSERT_EQ(all.size(), 2U);  // there is nothing to share out
  for (const Forecast& one : all) {
    EXPECT_EQ(one.sent, 0);
    EXPECT_EQ(one.bound, Bound::kCompute);
    EXPECT_DOUBLE_EQ(one.seconds, one.compute_seconds);
  }
  EXPECT_GT(of(all, Sharding::kNone, true).seconds, of(all, Sharding::kNone).seconds);
}

TEST(Forecast, WhatIsSentIsTheSumsAndTheValues) {
  const auto model = nn::make_empty_model(model_of(3));
  TrainOptions options = some_rows(16);
  const auto once = forecasts(*model, options, {.ranks = 4});
  // A sum in parts, and the values from their ranks, are three quarters of the parameters each.
  EXPECT_EQ(of(once, Sharding::kNone).sent, of(once, Sharding::kOptimizer).sent);
  EXPECT_EQ(of(once, Sharding::kNone).sent, 1.5 * of(once, Sharding::kNone).memory.weights);
  EXPECT_EQ(of(once, Sharding::kOptimizer).sent, of(once, Sharding::kGradients).sent);
  EXPECT_GT(of(once, Sharding::kAll).sent, of(once, Sharding::kGradients).sent);
  options.micro_batch = 1;  // four passes
  const auto often = forecasts(*model, options, {.ranks = 4});
  EXPECT_EQ(of(often, Sharding::kOptimizer).sent, of(once, Sharding::kOptimizer).sent);
  EXPECT_EQ(of(often, Sharding::kGradients).sent, 2.5 * of(once, Sharding::kGradients).sent);
}

TEST(Forecast, RanksThatShareRowsShareWhatAPassKeeps) {
  const auto model = nn::make_empty_model(model_of(3));
  TrainOptions options = some_rows(4);
  const auto apart = forecasts(*model, options, {.ranks = 4});
  options.context_ranks = 4;
  options.micro_batch = 1;
  const auto shared = forecasts(*model, options, {.ranks = 4});
  options.context_ranks = 1;
  const auto alone = forecasts(*model, options, {.ranks = 4});
  const auto& one = of(shared, Sharding::kOptimizer);
  EXPECT_NEAR(one.memory.activations, of(alone, Sharding::kOptimizer).memory.activations / 4, 1);
  EXPECT_DOUBLE_EQ(one.compute_seconds, of(apart, Sharding::kOptimizer).compute_seconds);
  // Four passes over rows of 64 tokens: keys and values of 32 columns come twice, and their
  // gradients go once, in each of 3 layers, three quarters of them from elsewhere.
  EXPECT_DOUBLE_EQ(one.sent - of(apart, Sharding::kOptimizer).sent,
                   4 * 3 * 3 * (2 * 4 * 32 * 64) * 0.75);
  EXPECT_GT(of(shared, Sharding::kOptimizer, true).sent, one.sent);
}

TEST(Forecast, TheSlowestPartBounds) {
  const auto model = nn::make_empty_model(model_of(3));
  const TrainOptions options = some_rows(16);
  const auto slow = forecasts(*model, options, {.ranks = 4, .flops = 1e5, .link = 1e-6});
  EXPECT_EQ(of(slow, Sharding::kOptimizer).bound, Bound::kLink);
  EXPECT_GT(of(slow, Sharding::kOptimizer).seconds, of(slow, Sharding::kOptimizer).compute_seconds);
  const auto fast = forecasts(*model, options, {.ranks = 4, .flops = 1e-6, .link = 1e5});
  EXPECT_EQ(of(fast, Sharding::kAll).bound, Bound::kCompute);
  EXPECT_NEAR(of(fast, Sharding::kAll).seconds / of(fast, Sharding::kAll).compute_seconds, 1, 1e-6);
  const auto full = forecasts(*model, options, {.ranks = 4, .memory = 1e-6});
  EXPECT_EQ(of(full, Sharding::kAll).bound, Bound::kMemory);
  EXPECT_EQ(recommended(full), nullptr);
}

TEST(Forecast, RecommendsTheFastestThatFits) {
  const auto model = nn::make_empty_model(model_of(12));
  TrainOptions options = some_rows(16);
  auto all = forecasts(*model, options, {.ranks = 4, .flops = 1e-6, .link = 1e5});
  const Forecast* best = recommended(all);
  ASSERT_TRUE(best);
  EXPECT_FALSE(best->recompute);
  EXPECT_EQ(best->sharding, Sharding::kOptimizer);
  all = forecasts(*model, options, {.ranks = 4, .flops = 1e3, .link = 1e-3});
  best = recommended(all);
  ASSERT_TRUE(best);
  EXPECT_NE(best->sharding, Sharding::kAll);
  // Where the fastest has no room, the next one that has.
  const double room = of(all, Sharding::kAll, true).memory.total() / 1e9;
  all =
      forecasts(*model, options, {.ranks = 4, .memory = 1.0001 * room, .flops = 1e3, .link = 1e-3});
  best = recommended(all);
  ASSERT_TRUE(best);
  EXPECT_TRUE(best->recompute);
  EXPECT_EQ(best->sharding, Sharding::kAll);
}

// What a rank holds between two steps; gives the bytes of its optimizer's state.
double check_kept(dist::World& world, Sharding sharding, OptimizerKind kind) {
  const auto model = nn::make_model(nn::with_method(model_of(3), "ssa"), 1);
  const auto parameters = model->parameter_list();
  Parallel parallel(world, *model, parameters, {.sharding = sharding, .optimizer = kind});
  std::vector<nn::NamedParameter> own;
  for (const Share& share : parallel.shares()) own.push_back(share.parameter);
  const auto plans =
      plan_buckets(parameters, bucket_options(*model, parameters, sharding, world.size(), kind));
  const auto kept = kept_bytes(parameters, plans, sharding, world.size(), kind);
  EXPECT_EQ(static_cast<double>(parallel.held_bytes()), kept.weights + kept.gradients);
  std::vector<double> states(static_cast<size_t>(world.size()));
  for (const auto& [name, tensor] : make_optimizer({.kind = kind}, own)->state())
    if (name != "steps")
      states[static_cast<size_t>(world.rank())] += static_cast<double>(tensor.nbytes());
  EXPECT_EQ(std::ranges::max(world.sums(states)), kept.optimizer);
  return kept.optimizer;
}

TEST(Forecast, SaysToTheByteWhatARankKeeps) {
  const auto errors = dist::run_in_threads(3, {.timeout = 60}, [&](dist::World& world) {
    for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
      const double whole = check_kept(world, Sharding::kNone, kind);
      for (const Sharding sharding : {Sharding::kOptimizer, Sharding::kGradients, Sharding::kAll})
        EXPECT_LT(check_kept(world, sharding, kind), whole);
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

}  // namespace
}  // namespace tempera::train
