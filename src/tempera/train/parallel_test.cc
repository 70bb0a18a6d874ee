#include "tempera/train/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tempera/dist/testing.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

constexpr int64_t kLayers = 6;

nn::ModelConfig layered_model() {
  nn::ModelConfig config = nn::with_method(nn::tiny_config(), "ssa");
  config.layers = kLayers;
  return config;
}

int64_t bytes_of(const std::vector<nn::NamedParameter>& parameters) {
  int64_t bytes = 0;
  for (const auto& parameter : parameters) bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  return bytes;
}

// What a rank holds when it begins and ends a block, in a pass over the model.
class Meter {
 public:
  explicit Meter(const Parallel& parallel) : parallel_(parallel) {}
  nn::LayerObserver observer() {
    return [this](int64_t layer, const torch::Tensor& output) {
      note();
      if (layer >= 0) output.register_hook([this](const torch::Tensor&) { note(); });
    };
  }
  int64_t most() const { return most_; }

 private:
  void note() { most_ = std::max(most_, parallel_.held_bytes()); }

  const Parallel& parallel_;
  int64_t most_ = 0;
};

struct Memory {
  int64_t parameters = 0;
  int64_t between_steps = 0;  // of parameters, gradients and the optimizer
  int64_t in_pass = 0;        // the most of parameters and gradients
};

Memory memory_of(dist::World& world, Sharding sharding, bool recompute = false) {
  const auto model = nn::make_model(layered_model(), 1);
  model->set_recompute(recompute);
  const auto parameters = model->parameter_list();
  Memory memory{.parameters = bytes_of(parameters)};
  Parallel parallel(world, *model, parameters, {.sharding = sharding});
  std::vector<nn::NamedParameter> own;
  for (const Share& share : parallel.shares()) own.push_back(share.parameter);
  const auto optimizer = make_optimizer({}, own);
  Meter meter(parallel);
  const nn::Batch batch = nn::tiny_batch();
  parallel.await_values();
  parallel.begin_gradients();
  parallel.begin_pass(/*last=*/true);
  model->train();
  model->project(model->hidden(batch, meter.observer())).square().mean().backward();
  parallel.end_pass();
  parallel.release_values();
  parallel.finish_gradients(1);
  optimizer->step({.rate = 1e-3});
  parallel.start_values();
  parallel.await_values();
  parallel.release_values();
  memory.in_pass = meter.most();
  memory.between_steps = parallel.held_bytes();
  for (const auto& [name, tensor] : optimizer->state())
    memory.between_steps += static_cast<int64_t>(tensor.nbytes());
  return memory;
}

class Shares : public testing::TestWithParam<int64_t> {};

TEST_P(Shares, AreAllThatARankHolds) {
  const int64_t ranks = GetParam();
  const auto errors = dist::run_in_threads(ranks, {.timeout = 60}, [&](dist::World& world) {
    at::set_num_threads(1);
    for (const bool recompute : {false, true}) {
      const Memory all = memory_of(world, Sharding::kAll, recompute);
      // Weights, gradients and two moments. The gaps between the parameters are small, and the
      // last rank has the most of them.
      const int64_t share = 4 * all.parameters / ranks;
      EXPECT_GE(all.between_steps, share - share / 100);
      EXPECT_LE(all.between_steps, share + share / 100);
      // In a pass the values of two blocks are there, the gradients of three, and what is in no
      // block.
      const int64_t block = all.parameters / kLayers;
      EXPECT_LE(all.in_pass, 2 * all.parameters / ranks + 6 * block);
      EXPECT_GT(all.in_pass, all.between_steps / 2);
    }
    const Memory gradients = memory_of(world, Sharding::kGradients);
    EXPECT_GE(gradients.between_steps, gradients.parameters + 3 * gradients.parameters / ranks);
    EXPECT_TRUE(ranks == 1 || memory_of(world, Sharding::kAll).in_pass < gradients.in_pass);
  });
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Shares, testing::Values(1, 2, 4));

TEST(Parallel, WholeValuesComeBackFromTheShares) {
  const auto errors = dist::run_in_threads(2, {.timeout = 60}, [](dist::World& world) {
    const auto model = nn::make_model(layered_model(), 1 + static_cast<uint64_t>(world.rank()));
    const auto expected = nn::make_model(layered_model(), 1)->state();
    Parallel parallel(world, *model, model->parameter_list(), {.sharding = Sharding::kAll});
    const nn::StateMap state = parallel.whole_state();
    for (const auto& [name, tensor] : expected) {
      if (!world.is_first()) break;
      EXPECT_TRUE(torch::equal(state.at(name), tensor)) << name;
    }
    parallel.with_values([&] { model->load_state(nn::make_model(layered_model(), 7)->state()); });
    const auto loaded = nn::make_model(layered_model(), 7)->state();
    parallel.with_values([&] {
      for (const auto& [name, tensor] : model->state())
        EXPECT_TRUE(torch::equal(tensor, loaded.at(name))) << name;
    });
    parallel.check_values();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace tempera::train
