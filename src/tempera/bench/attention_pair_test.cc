#include "tempera/bench/attention_pair.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::bench {
namespace {

constexpr AttentionShape kSmall{
    .batch = 2, .heads = 4, .kv_heads = 2, .length = 40, .size = 16, .type = torch::kFloat32};

TEST(AttentionPair, BothSidesAgreeOnEveryMethod) {
  torch::manual_seed(1);
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    AttentionShape shape = kSmall;
    shape.type = type;
    const auto inputs = AttentionPair::make_inputs(shape);
    for (const auto& entry : method_registry()) {
      SCOPED_TRACE(entry.name);
      EXPECT_NO_THROW(AttentionPair(shape, inputs, entry.name).check());
    }
    EXPECT_NO_THROW(AttentionPair(shape, inputs, "head+value").check());
  }
}

TEST(AttentionPair, TheStepHasTheGradientsOfTheParameters) {
  torch::manual_seed(1);
  const auto inputs = AttentionPair::make_inputs(kSmall);
  const AttentionPair pair(kSmall, inputs, "ssa");
  for (const Side side : {Side::kOurs, Side::kTorch}) {
    const auto results = pair.step(side);
    ASSERT_EQ(results.size(), 1U + 4 + 4);  // out; q, k, v, x; w and slope of q and of v
    for (size_t i = 0; i < results.size(); ++i) {
      if (i == 4) continue;  // x, which the default form does not read
      ASSERT_TRUE(results[i].defined()) << i;
      EXPECT_GT(results[i].abs().max().item<double>(), 0) << i;
    }
  }
}

TEST(AttentionPair, TheTemperatureMatters) {
  torch::manual_seed(1);
  const auto inputs = AttentionPair::make_inputs(kSmall);
  const auto plain = AttentionPair(kSmall, inputs, "softmax").forward(Side::kTorch);
  const auto focal = AttentionPair(kSmall, inputs, "focal").forward(Side::kTorch);
  EXPECT_GT(relative_error(focal, plain), 0.01);
}

TEST(RelativeError, IsInUnitsOfTheLargest) {
  const auto expected = torch::tensor({1.0, -4.0});
  EXPECT_DOUBLE_EQ(relative_error(torch::tensor({1.0, -4.0}), expected), 0);
  EXPECT_DOUBLE_EQ(relative_error(torch::tensor({2.0, -4.0}), expected), 0.25);
  EXPECT_TRUE(std::isnan(relative_error(torch::tensor({2.0, std::nan("")}), expected)));
}

TEST(AttentionShape, CountsWhatCausalityLeaves) {
  EXPECT_DOUBLE_EQ(kSmall.forward_flops(), 4.0 * 2 * 4 * 40 * 40 * 16 / 2);
  AttentionShape odd = kSmall;
  odd.size = 20;
  EXPECT_THROW(odd.check(), UsageError);
  EXPECT_EQ(kSmall.text(), "B 2, H 4/2, T 40, D 16, fp32");
}

}  // namespace
}  // namespace tempera::bench
