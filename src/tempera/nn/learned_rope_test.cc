#include "tempera/nn/learned_rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/nn/model.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// Factors that are learned, from 1, 1.5, 2, ...
ModelConfig learned_config() {
  ModelConfig config = tiny_config();
  config.rope.scaling = RopeScaling::kFactors;
  for (int64_t i = 0; i < config.rotary_size() / 2; ++i)
    config.rope.factors.push_back(1 + 0.5 * static_cast<double>(i));
  config.rope.attention_factor = 1.2;
  config.rope.learned = true;
  return config;
}

torch::Tensor shift_of(Model& model) { return model.named_parameters().find(kRopeShift)->detach(); }

// The same rotation in operators of torch that have gradients of their own.
torch::Tensor composed(const torch::Tensor& x, const Angles& angles) {
  const int64_t pairs = angles.cos.size(1);
  auto cos = angles.cos, sin = angles.sin;
  if (angles.positions.defined()) {
    cos = cos.index_select(0, angles.positions.flatten()).view({x.size(0), 1, x.size(2), pairs});
    sin = sin.index_select(0, angles.positions.flatten()).view({x.size(0), 1, x.size(2), pairs});
  } else {
    cos = cos.narrow(0, 0, x.size(2));
    sin = sin.narrow(0, 0, x.size(2));
  }
  const auto first = x.narrow(3, 0, pairs), second = x.narrow(3, pairs, pairs);
  return torch::cat({first * cos - second * sin, second * cos + first * sin,
                     x.narrow(3, 2 * pairs, x.size(3) - 2 * pairs)},
                    3);
}

TEST(LearnedRope, RotationHasTheGradientsOfItsTables) {
  torch::manual_seed(1);
  for (const bool packed : {false, true}) {
    const auto start = torch::tensor({1.0, 0.3, 0.01}, torch::kFloat64);
    std::vector<torch::Tensor> gradients[2];
    const auto x0 = torch::randn({2, 3, 5, 8}), weight = torch::randn({2, 3, 5, 8});
    const auto positions =
        packed ? torch::tensor({{0, 1, 2, 0, 1}, {0, 1, 0, 1, 2}}) : torch::Tensor();
    for (const bool ours : {false, true}) {
      const auto shift = torch::full({3}, 0.1, torch::requires_grad());
      const auto x = x0.clone().requires_grad_();
      const auto angles = learned_angles(shifted_frequencies(start, shift), 1.3, 7, positions);
      EXPECT_TRUE(angles.learned());
      const auto y = ours ? learned_rotary(x, angles) : composed(x, angles);
      (y * weight).sum().backward();
      gradients[ours ? 1 : 0] = {y.detach(), x.grad(), shift.grad()};
    }
    for (size_t i = 0; i < 3; ++i)
      EXPECT_LT(largest_difference(gradients[0][i], gradients[1][i]), 1e-4) << i << " " << packed;
    EXPECT_GT(gradients[1][2].abs().min().item<float>(), 1e-4) << "every frequency has a gradient";
  }
}

TEST(LearnedRope, AShiftMovesSlowFrequenciesAsAWhole) {
  const auto start = torch::tensor({1.0, 1e-4}, torch::kFloat64);
  const auto moved = shifted_frequencies(start, torch::tensor({0.5, 0.5}));
  EXPECT_NEAR(moved[0].item<double>(), std::exp(0.5 / 1024), 1e-9);
  EXPECT_NEAR(moved[1].item<double>(), 1e-4 * std::exp(0.5), 1e-9);
}

// A table that was made before a step is not the one after it; and what was learned is in the
// factors of the settled model.
TEST(LearnedRope, InferenceFollowsTheParameter) {
  const torch::NoGradGuard no_grad;
  const auto model = make_model(learned_config(), 1);
  const auto batch = tiny_batch();
  const auto before = eval_logits(*model, batch);
  shift_of(*model).fill_(0.3);
  const auto after = eval_logits(*model, batch);
  EXPECT_GT(largest_difference(before, after), 1e-5);
  ModelConfig settled = learned_config();
  settled.rope = model->settled_rope();
  EXPECT_FALSE(settled.rope.learned);
  const auto plain = make_model(settled, 1);
  EXPECT_LT(largest_difference(after, eval_logits(*plain, batch)), 1e-5);
  EXPECT_FALSE(plain->state().contains(kRopeShift));
}

TEST(LearnedRope, TrainingAndInferenceComputeTheSame) {
  const auto model = make_model(learned_config(), 1);
  model->eval();
  const auto batch = tiny_batch();
  const auto trained = model->logits(batch).detach();
  EXPECT_LT(largest_difference(trained, eval_logits(*model, batch)), 1e-4);
  torch::Tensor gradients[2];
  for (const bool again : {false, true}) {
    model->set_recompute(again);
    model->zero_grad();
    model->loss(batch).backward();
    gradients[again ? 1 : 0] = model->named_parameters().find(kRopeShift)->grad().clone();
  }
  EXPECT_GT(gradients[0].abs().max().item<float>(), 0);
  EXPECT_LT(largest_difference(gradients[0], gradients[1]), 1e-6);
}

}  // namespace
}  // namespace tempera::nn
