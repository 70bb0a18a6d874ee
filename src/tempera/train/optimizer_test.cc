#include "tempera/train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

std::vector<nn::NamedParameter> make_parameters() {
  torch::manual_seed(7);
  std::vector<nn::NamedParameter> parameters{
      {"hidden", torch::randn({6, 4}), nn::ParameterKind::kMatrix},
      {"table", torch::randn({5, 4}), nn::ParameterKind::kEmbedding},
      {"gain", torch::randn({4}), nn::ParameterKind::kVector},
      {"alpha", torch::randn({3}), nn::ParameterKind::kTemperature}};
  for (auto& parameter : parameters) parameter.tensor.set_requires_grad(true);
  return parameters;
}

void set_gradients(const std::vector<nn::NamedParameter>& parameters, int step) {
  for (const auto& parameter : parameters) {
    auto value = parameter.tensor;
    value.mutable_grad() = torch::sin(value.detach() * (step + 1)) + 0.1 * step;
  }
}

void run(Optimizer& optimizer, const std::vector<nn::NamedParameter>& parameters, int first,
         int last, double scale = 1) {
  for (int step = first; step < last; ++step) {
    set_gradients(parameters, step);
    optimizer.step({.rate = 0.01, .gradient_scale = scale});
  }
}

TEST(AdamW, EqualsTorch) {
  const auto ours = make_parameters();
  const auto theirs = make_parameters();
  const OptimizerOptions options{.temperature_rate = 3, .beta2 = 0.98, .decay = 0.2};
  const auto optimizer = make_optimizer(options, ours);
  using torch::optim::AdamWOptions;
  const auto group = [&](size_t i, double rate, double decay) {
    return torch::optim::OptimizerParamGroup(
        {theirs[i].tensor},
        std::make_unique<AdamWOptions>(
            AdamWOptions(rate).betas({0.9, 0.98}).eps(1e-8).weight_decay(decay)));
  };
  torch::optim::AdamW torch_optimizer(
      {group(0, 0.01, 0.2), group(1, 0.01, 0.2), group(2, 0.01, 0), group(3, 0.03, 0)});
  for (int step = 0; step < 20; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    optimizer->step({.rate = 0.01});
    torch_optimizer.step();
  }
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_LT((ours[i].tensor - theirs[i].tensor).abs().max().item<double>(), 2e-6) << ours[i].name;
}

TEST(AdamW, ByHand) {
  const std::vector<nn::NamedParameter> parameters{
      {"w", torch::full({1}, 2.0).set_requires_grad(true), nn::ParameterKind::kEmbedding}};
  const auto optimizer = make_optimizer({.beta2 = 0.99, .epsilon = 1e-3, .decay = 0.5}, parameters);
  auto value = parameters[0].tensor;
  value.mutable_grad() = torch::full({1}, 6.0);
  optimizer->step({.rate = 0.1, .gradient_scale = 0.5});
  // The gradient is 3; both means are corrected back to it: 2 * (1 - 0.05) - 0.1 * 3 / (3 + 0.001)
  EXPECT_NEAR(value.item<double>(), 1.9 - 0.3 / 3.001, 1e-6);
}

TEST(Sgd, EqualsTorch) {
  const auto ours = make_parameters();
  const auto theirs = make_parameters();
  const auto optimizer =
      make_optimizer({.kind = OptimizerKind::kSgd, .decay = 0, .momentum = 0.8}, ours);
  std::vector<torch::Tensor> values;
  for (const auto& parameter : theirs) values.push_back(parameter.tensor);
  torch::optim::SGD torch_optimizer(values, torch::optim::SGDOptions(0.01).momentum(0.8));
  for (int step = 0; step < 10; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    optimizer->step({.rate = 0.01});
    torch_optimizer.step();
  }
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_LT((ours[i].tensor - theirs[i].tensor).abs().max().item<double>(), 1e-6) << ours[i].name;
}

TEST(Sgd, DecaysMatricesAndEmbeddingsOnly) {
  const auto parameters = make_parameters();
  const auto before = make_parameters();
  const auto optimizer =
      make_optimizer({.kind = OptimizerKind::kSgd, .decay = 0.5, .momentum = 0}, parameters);
  for (const auto& parameter : parameters) {
    auto value = parameter.tensor;
    value.mutable_grad() = torch::zeros_like(value);
  }
  optimizer->step({.rate = 0.1});
  for (size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(torch::allclose(parameters[i].tensor, before[i].tensor * (i < 2 ? 0.95 : 1.0)))
        << parameters[i].name;
}

TEST(Muon, OrthogonalizesTallAndWideMatrices) {
  torch::manual_seed(3);
  for (const auto& shape : {std::vector<int64_t>{12, 5}, {5, 12}, {8, 8}}) {
    const auto matrix = torch::randn(shape);
    const auto values = torch::linalg_svdvals(orthogonalized(matrix), std::nullopt);
    EXPECT_GT(values.min().item<double>(), 0.3);
    EXPECT_LT(values.max().item<double>(), 1.3);
    // The same singular vectors: the product with the matrix is symmetric and positive.
    const auto product = orthogonalized(matrix).matmul(matrix.t());
    EXPECT_LT((product - product.t()).abs().max().item<double>(), 1e-4);
  }
}

TEST(Muon, MovesHiddenMatricesOrthogonallyAndTheRestByAdamW) {
  const auto muon_parameters = make_parameters();
  const auto adamw_parameters = make_parameters();
  const auto start = make_parameters();
  const auto muon = make_optimizer({.kind = OptimizerKind::kMuon, .decay = 0}, muon_parameters);
  const auto adamw = make_optimizer({.decay = 0}, adamw_parameters);
  run(*muon, muon_parameters, 0, 1);
  run(*adamw, adamw_parameters, 0, 1);
  for (size_t i = 1; i < start.size(); ++i)
    EXPECT_TRUE(torch::equal(muon_parameters[i].tensor, adamw_parameters[i].tensor));
  // At the first step the direction is the gradient's.
  const auto moved = (muon_parameters[0].tensor - start[0].tensor) / (-0.01 * 0.2 * std::sqrt(6.0));
  EXPECT_TRUE(torch::allclose(moved, orthogonalized(torch::sin(start[0].tensor)), 1e-3, 1e-4));
}

TEST(Optimizer, GoesOnFromItsStateWithTheSameBits) {
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kMuon}) {
    const OptimizerOptions options{.kind = kind};
    const auto whole = make_parameters();
    const auto reference = make_optimizer(options, whole);
    run(*reference, whole, 0, 8, 0.5);

    const auto first = make_parameters();
    const auto stopped = make_optimizer(options, first);
    run(*stopped, first, 0, 5, 0.5);
    auto second = make_parameters();
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < first.size(); ++i) second[i].tensor.copy_(first[i].tensor);
    }
    const auto resumed = make_optimizer(options, second);
    {
      const torch::NoGradGuard no_grad;
      for (auto& [name, tensor] : resumed->state()) tensor.copy_(stopped->state().at(name));
    }
    run(*resumed, second, 5, 8, 0.5);
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(torch::equal(whole[i].tensor, second[i].tensor)) << whole[i].name;
  }
}

TEST(GradientNorm, SumsOverAllParametersAlsoWhereSquaresOverflow) {
  auto a = torch::zeros({2}).set_requires_grad(true);
  auto b = torch::zeros({1}).set_requires_grad(true);
  auto unused = torch::zeros({1}).set_requires_grad(true);
  a.mutable_grad() = torch::tensor({2.0F, 3.0F});
  b.mutable_grad() = torch::tensor({6.0F});
  const std::vector<nn::NamedParameter> parameters{{"a", a, nn::ParameterKind::kVector},
                                                   {"b", b, nn::ParameterKind::kVector},
                                                   {"unused", unused, nn::ParameterKind::kVector}};
  EXPECT_NEAR(gradient_norm(parameters), 7, 1e-6);
  b.mutable_grad().fill_(1e25);
  EXPECT_NEAR(gradient_norm(parameters) / 1e25, 1, 1e-6);
  b.mutable_grad().fill_(NAN);
  EXPECT_TRUE(std::isnan(gradient_norm(parameters)));
}

}  // namespace
}  // namespace tempera::train
