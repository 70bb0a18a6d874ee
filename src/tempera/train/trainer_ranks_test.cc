#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tempera/base/interrupt.h"
#include "tempera/dist/testing.h"
#include "tempera/ops/torch.h"
#include "tempera/train/divergence.h"
#include "tempera/train/pace.h"
#include "tempera/train/trainer.h"

namespace tempera::train {
namespace {

constexpr int64_t kTokens = 8, kRanks = 2;

// Every row repeats a token of its own: its number in the step.
class Numbered final : public data::Dataset {
 public:
  std::string name() const override { return "numbered"; }
  int64_t vocabulary() const override { return kTokens; }
  int64_t classes() const override { return kTokens; }
  int64_t train_length() const override { return 4; }
  data::Batch train(const data::BatchRequest& request) const override {
    data::Batch batch;
    batch.rows = request.rows;
    batch.length = train_length();
    for (int64_t row = 0; row < request.rows; ++row)
      batch.tokens.insert(batch.tokens.end(), static_cast<size_t>(batch.length),
                          request.first_row + row);
    batch.targets = batch.tokens;
    return batch;
  }
  const std::vector<data::HeldOutSet>& held_out_sets() const override { return none_; }
  data::Batch held_out(size_t, int64_t, int64_t) const override { return {}; }

 private:
  std::vector<data::HeldOutSet> none_;
};

std::shared_ptr<nn::Model> model_of_numbers() {
  nn::ModelConfig config;
  config.vocabulary = kTokens;
  config.layers = 1;
  config.width = 16;
  config.heads = 2;
  config.mlp_size = 16;
  config.context = 4;
  config.embedding_scale = 1e3;
  config.tied_embeddings = false;
  return nn::make_model(config, 5);
}

Trainer trainer_of(Sharding sharding, std::shared_ptr<nn::Model> model,
                   const std::function<int()>& signal = {}) {
  TrainOptions options;
  options.steps = 2;
  options.batch = kRanks;
  options.device = config::Device::kCpu;
  options.sharding = sharding;
  TrainEvents events;
  events.signal = signal;
  return {options, std::move(model), [](size_t, int64_t) { return std::make_shared<Numbered>(); },
          std::move(events)};
}

// Every rank trains the model that `make` gives it.
std::vector<std::string> train_as_ranks(
    Sharding sharding,
    const std::function<std::shared_ptr<nn::Model>(const dist::World& world)>& make) {
  return dist::run_in_threads(kRanks, {.timeout = 60}, [&](dist::World& world) {
    at::set_num_threads(1);
    Trainer trainer = trainer_of(sharding, make(world));
    trainer.join(world);
    trainer.run();
  });
}

TEST(TrainerRanks, WhatOneRankFindsInItsRowsIsSaidByAll) {
  for (const Sharding sharding : {Sharding::kOptimizer, Sharding::kAll}) {
    const auto errors = train_as_ranks(sharding, [](const dist::World&) {
      auto model = model_of_numbers();
      // Infinite once it is scaled; the rows of the second rank alone have it.
      model->state().at("embedding.weight")[1].fill_(1e37);
      return model;
    });
    EXPECT_NE(errors[0].find("the activations of the embedding are infinite"), std::string::npos)
        << errors[0];
    EXPECT_EQ(errors[0], errors[1]);
  }
}

TEST(TrainerRanks, OtherFrozenWeightsAreFoundAtTheStart) {
  const auto errors = train_as_ranks(Sharding::kOptimizer, [](const dist::World& world) {
    auto model = model_of_numbers();
    auto frozen = model->state().at("embedding.weight");
    if (!world.is_first()) frozen[3][3] += 1;
    for (auto& parameter : model->parameter_list())
      if (parameter.tensor.is_same(frozen) || parameter.tensor.data_ptr() == frozen.data_ptr())
        parameter.tensor.set_requires_grad(false);
    return model;
  });
  EXPECT_NE(errors[0].find("rank 0 has frozen weights with the checksum "), std::string::npos)
      << errors[0];
}

TEST(TrainerRanks, TheOrderToEndCountsMoreThanAKey) {
  for (const int first : {SIGINT, SIGTERM}) {
    std::vector<int> ended(kRanks);
    dist::run_in_threads(kRanks, {.timeout = 60}, [&](dist::World& world) {
      at::set_num_threads(1);
      Trainer trainer = trainer_of(Sharding::kOptimizer, model_of_numbers(),
                                   [&] { return world.is_first() ? first : SIGINT; });
      trainer.join(world);
      try {
        trainer.run();
      } catch (const Interrupted& error) {
        ended[static_cast<size_t>(world.rank())] = error.signal();
      }
    });
    EXPECT_EQ(ended, std::vector<int>(kRanks, first));
  }
}

TEST(Pace, IsOfTheStepsAlone) {
  const auto errors = dist::run_in_threads(4, {.timeout = 60}, [](dist::World& world) {
    Pace pace;
    const std::vector<double> work = {1, 2, 4, 9};
    const double own = work[static_cast<size_t>(world.rank())];
    for (int step = 0; step < 2; ++step) pace.add_step(9, 9 - own);
    Json seconds = pace.report(world)["rank_seconds"];
    EXPECT_EQ(seconds["slowest"], 9.0);
    EXPECT_EQ(seconds["slowest_rank"], 3);
    EXPECT_EQ(seconds["median"], 3.0);  // of ranks 1 and 2
    EXPECT_EQ(seconds["waited"], 5.0);
    pace.add_step(3, 1);
    EXPECT_EQ(pace.report(world)["rank_seconds"]["median"], 2.0);
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
}

}  // namespace
}  // namespace tempera::train
