#include "tempera/train/graph_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/nn/testing_model.h"
#include "tempera/ops/graph.h"
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
  if (!ops::CudaGraph::possible(torch::kCUDA)) GTEST_SKIP() << "this program has no CUDA kernels";
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

// A batch with documents between two steps in the graph leaves its own gradients behind.
TEST(GraphStep, LeavesTheGradientsOfItsStep) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU that torch can use";
  if (!ops::CudaGraph::possible(torch::kCUDA)) GTEST_SKIP() << "this program has no CUDA kernels";
  const auto model = nn::make_model(nn::with_method(nn::tiny_config(), "ssa"), 1);
  model->to(torch::kCUDA);
  model->train();
  const auto parameters = model->parameter_list();
  const OptimizerOptions options;
  const auto optimizer = make_optimizer(options, parameters);
  GraphStep graph(*model, *optimizer, options, /*label_smoothing=*/0);
  nn::Batch batch = nn::tiny_batch();
  const auto eager = [&] {
    nn::Batch moved = batch;
    for (auto* tensor : {&moved.tokens, &moved.targets}) *tensor = tensor->cuda();
    model->zero_grad();
    model->loss(moved).backward();
    return gradient_norms(parameters);
  };
  for (int step = 0; step < 4; ++step) {
    batch.tokens = (batch.tokens + 1) % 11;
    const auto expected = eager();
    graph.load(batch);
    graph.start(options.learning_rate);
    const double norm = graph.finish().norm;
    const auto found = gradient_norms(parameters);
    double squares = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-4 * norm) << parameters[i].name << ", step " << step;
      squares += found[i] * found[i];
    }
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm);
  }
}

TEST(GraphStep, IsNotPossibleOnTheCpu) {
  const auto model = nn::make_model(nn::tiny_config(), 1);
  EXPECT_FALSE(GraphStep::possible(*model, torch::kCPU, OptimizerOptions{}));
}

// What reaches the graph when the batches of some steps hold documents.
std::vector<int64_t> fed_steps(const std::vector<bool>& packed, bool ahead) {
  std::vector<int64_t> fed;
  int64_t loaded = -1;
  GraphFeed feed(
      [&](int64_t step) {
        nn::Batch batch = nn::tiny_batch();
        batch.tokens = torch::full_like(batch.tokens, step);
        if (packed[static_cast<size_t>(step)])
          batch.documents = torch::tensor({{batch.tokens.size(1) - 1, int64_t{1}}})
                                .expand({batch.tokens.size(0), 2});
        return batch;
      },
      [&](const nn::Batch& batch) {
        EXPECT_FALSE(batch.documents.defined()) << "a graph has no mask";
        loaded = batch.tokens.flatten()[0].item<int64_t>();
      });
  for (int64_t step = 0; step < std::ssize(packed); ++step) {
    if (!feed.take(step)) continue;
    fed.push_back(loaded);
    if (ahead && step + 1 < std::ssize(packed)) feed.fetch_ahead(step + 1);
  }
  return fed;
}

TEST(GraphFeed, BatchesWithDocumentsNeverReachTheGraph) {
  const std::vector<bool> packed = {false, true, true, false, false, true, false};
  for (const bool ahead : {false, true})
    EXPECT_EQ(fed_steps(packed, ahead), (std::vector<int64_t>{0, 3, 4, 6})) << ahead;
}

}  // namespace
}  // namespace tempera::train
