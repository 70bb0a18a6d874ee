#include "tempera/train/weight_copies.h"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

// Copies stand in for the weights of linear layers, and for nothing else, until they go.
TEST(WeightCopies, StandInForWeightsWhileInUse) {
  const auto model = nn::make_model(nn::tiny_config(), 1);
  EXPECT_FALSE(WeightCopies(*model).of(model->parameters()[0]).defined());
  model->set_compute_type(torch::kBFloat16);
  WeightCopies copies(*model);
  int64_t copied = 0;
  for (const auto& named : model->parameter_list()) {
    const auto& [name, parameter] = std::tie(named.name, named.tensor);
    const auto copy = copies.of(parameter);
    if (!copy.defined()) continue;
    ++copied;
    EXPECT_EQ(parameter.dim(), 2) << name;
    const auto before = parameter.detach().clone();
    {
      const WeightCopies::InUse in_use(copies);
      EXPECT_TRUE(parameter.is_same(model->named_parameters()[name])) << name;
      EXPECT_EQ(parameter.scalar_type(), torch::kBFloat16) << name;
      EXPECT_EQ(parameter.data_ptr(), copy.data_ptr()) << name;
    }
    EXPECT_TRUE(parameter.equal(before)) << name;
    EXPECT_TRUE(parameter.requires_grad()) << name;
    EXPECT_FALSE(copies.stale());
    const torch::NoGradGuard no_grad;
    torch::Tensor(parameter).add_(1);
    EXPECT_TRUE(copies.stale());
    copies.refresh();
    EXPECT_FALSE(copies.stale());
    EXPECT_TRUE(copy.equal(parameter.to(torch::kBFloat16))) << name;
  }
  EXPECT_GT(copied, 0);
}

// A pass that finds copies is the pass that converts weights.
TEST(WeightCopies, GiveTheSameLossAndGradients) {
  const auto model = nn::make_model(nn::with_method(nn::tiny_config(), "ssa"), 1);
  model->set_compute_type(torch::kBFloat16);
  const WeightCopies copies(*model);
  const auto pass = [&](const auto&... /*in use*/) {
    model->zero_grad();
    const auto loss = model->loss(nn::tiny_batch());
    loss.backward();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad());
    return std::pair(loss.item<double>(), gradients);
  };
  const auto [expected, converted] = pass();
  const auto [loss, gradients] = pass(WeightCopies::InUse(copies));
  EXPECT_EQ(loss, expected);
  const auto parameters = model->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool copied = copies.of(parameters[i]).defined();
    EXPECT_EQ(gradients[i].scalar_type(), copied ? torch::kBFloat16 : torch::kFloat32);
    EXPECT_TRUE(gradients[i].to(torch::kFloat32).equal(converted[i])) << i;
  }
}

}  // namespace
}  // namespace tempera::train
