#include "tempera/train/graph_step.h"

#include <gtest/gtest.h>

#include "tempera/nn/testing_model.h"
#include "tempera/ops/cuda.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

// Losses of a few steps from the same start, in a graph or one operator after the other. Before the
// fourth the weights are changed by others, which the graph has to see.
std::vector<double> losses(const std::string& method, torch::ScalarType type, bool in_graph) {
  const auto model = nn::make_model(nn::with_method(nn::tiny_config(), method), 1);
  model->to(torch::kCUDA);
  model->set_compute_type(type);
  model->train();
  const auto parameters = model->parameter_list();
  const OptimizerOptions options;
  const auto optimizer = make_optimizer(options, parameters);
  GraphStep graph(*model, *optimizer, options, /*label_smoothing=*/0);
  std::vector<double> found;
  for (int step = 0; step < 6; ++step) {
    nn::Batch batch = nn::tiny_batch();
    batch.tokens = (batch.tokens + step) % 11;  // every step another one
    if (step == 3) {
      const torch::NoGradGuard no_grad;
      for (const auto& parameter : parameters) torch::Tensor(parameter.tensor).mul_(1.5);
    }
    if (in_graph) {
      graph.load(batch);
      graph.start(options.learning_rate);
      found.push_back(graph.finish().loss);
      continue;
    }
    for (auto* tensor : {&batch.tokens, &batch.targets}) *tensor = tensor->cuda();
    model->zero_grad();
    const auto loss = model->loss(batch);
    loss.backward();
    const double norm = gradient_norm(parameters);
    optimizer->step({.rate = options.learning_rate,
                     .gradient_scale = norm > options.clip ? options.clip / norm : 1});
    found.push_back(loss.item<double>());
  }
  return found;
}

TEST(GraphStep, FollowsTheStepsWithoutAGraph) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU that torch can use";
  if (!ops::cuda::has_kernels()) GTEST_SKIP() << "this program has no CUDA kernels";
  for (const std::string method : {"softmax", "ssa", "focal"}) {
    const auto expected = losses(method, torch::kFloat32, /*in_graph=*/false);
    const auto exact = losses(method, torch::kFloat32, /*in_graph=*/true);
    const auto rounded = losses(method, torch::kBFloat16, /*in_graph=*/true);
    const auto converted = losses(method, torch::kBFloat16, /*in_graph=*/false);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(exact[i], expected[i], 1e-4 * expected[i]) << method << ", step " << i;
      EXPECT_NEAR(rounded[i], expected[i], 3e-2 * expected[i]) << method << ", step " << i;
      // The graph's copies of the weights are the weights converted.
      EXPECT_NEAR(rounded[i], converted[i], 1e-3 * converted[i]) << method << ", step " << i;
    }
    EXPECT_NE(expected.front(), expected.back());
  }
}

TEST(GraphStep, IsNotPossibleOnTheCpu) {
  const auto model = nn::make_model(nn::tiny_config(), 1);
  EXPECT_FALSE(GraphStep::possible(*model, torch::kCPU, OptimizerOptions{}));
}

}  // namespace
}  // namespace tempera::train
