#include <gtest/gtest.h>

#include "tempera/base/testing.h"
#include "tempera/nn/testing_model.h"

// Rows that stand apart, at positions of their own.
namespace tempera::nn {
namespace {

ModelConfig small(const std::string& method, double stretch) {
  auto config = with_method(tiny_config(), method);
  config.rope.scaling = stretch > 1 ? RopeScaling::kLinear : RopeScaling::kNone;
  config.rope.factor = stretch;
  return config;
}

Batch spread_batch(int64_t step) {
  Batch batch = tiny_batch();
  batch.positions = (torch::arange(12) * step).expand({3, 12}).contiguous();
  batch.position_end = 12 * step;
  return batch;
}

// Every third position, at a third of the frequencies, is every position.
TEST(Spread, RowsTurnByTheirPositions) {
  const auto plain = moved_model(small("head,value", 1));
  const auto slow = moved_model(small("head,value", 3));
  plain->eval();
  slow->eval();
  const auto expected = plain->logits(tiny_batch());
  EXPECT_LT(largest_difference(slow->logits(spread_batch(3)), expected), 1e-5);
  EXPECT_GT(largest_difference(slow->logits(tiny_batch()), expected), 1e-2);
  const auto moved = spread_batch(1);
  auto far = moved;
  far.positions = moved.positions + 40;
  far.position_end = 52;
  EXPECT_LT(largest_difference(plain->logits(far), plain->logits(moved)), 1e-4)
      << "distances count, not places";
}

// A log-n slope goes by the keys of the whole text, as a factor of the logits does that says so.
TEST(Spread, MethodsSeeTheKeysThatAreMissing) {
  const auto sloped = moved_model(small("slope", 3));
  const auto plain = moved_model(small("softmax", 3));
  auto equal = sloped->state();
  for (auto& [name, tensor] : equal)
    if (is_temperature(name)) tensor = torch::full_like(tensor, 0.3);
  sloped->load_state(equal);
  auto state = plain->state();
  for (auto& [name, tensor] : state) tensor = equal.at(name);
  plain->load_state(state);
  plain->eval();
  sloped->eval();
  auto batch = spread_batch(3);
  const auto found = sloped->logits(batch);
  batch.attention_scale = 1 + 0.3 * (batch.positions + 1).to(torch::kFloat32).log();
  EXPECT_LT(largest_difference(plain->logits(batch), found), 1e-5);
  batch.attention_scale =
      1 + 0.3 * (torch::arange(12) + 1).to(torch::kFloat32).log().expand({3, 12});
  EXPECT_GT(largest_difference(plain->logits(batch), found), 1e-2);
}

// In every way that a pass is computed, with the gradients of what it learns.
TEST(Spread, GradientsAreThoseOfTheWholeTable) {
  auto config = with_method(tiny_config(), "head,slope,value");
  config.rope.scaling = RopeScaling::kFactors;
  config.rope.factors.assign(static_cast<size_t>(config.rotary_size() / 2), 1.5);
  config.rope.original_context = 64;
  config.rope.learned = true;
  const auto gradients = [&](bool recompute) {
    const auto model = moved_model(config);
    model->set_recompute(recompute);
    auto batch = spread_batch(4);
    batch.attention_scale = torch::full({3, 12}, 0.8F);
    model->train();
    model->loss(batch).backward();
    std::vector<torch::Tensor> list;
    for (const auto& parameter : model->parameter_list()) {
      EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
      list.push_back(parameter.tensor.grad().flatten());
    }
    return torch::cat(list);
  };
  EXPECT_LT(largest_difference(gradients(true), gradients(false)), 1e-6);
}

TEST(Spread, RefusesModelsWhosePositionsAreOthers) {
  auto config = tiny_config();
  config.position = PositionKind::kLearned;
  const auto refusal = [&] {
    return message_of([&] { make_model(config, 1)->logits(spread_batch(2)); });
  };
  EXPECT_TRUE(says(refusal(), "rotary positions"));
  config = tiny_config();
  config.window = 4;
  EXPECT_TRUE(says(refusal(), "sees all keys"));
  auto batch = spread_batch(2);
  batch.positions = batch.positions.narrow(1, 0, 5);
  EXPECT_TRUE(says(message_of([&] { make_model(tiny_config(), 1)->logits(batch); }),
                   "one for each of [3, 12] tokens"));
}

}  // namespace
}  // namespace tempera::nn
