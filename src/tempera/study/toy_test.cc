#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/study/denoise.h"
#include "tempera/study/graph.h"
#include "tempera/study/toy_layer.h"

namespace tempera::study {
namespace {

TEST(Denoise, ClosedFormsAreWhatTheEstimatorsGive) {
  const DenoiseTask task{.size = 6, .relevant = 3, .sigma = 0.7};
  for (const int64_t noise : {0, 5, 40}) {
    auto random = toy_random(noise, "test");
    const auto batch = make_denoise_batch(task, 20000, noise, random);
    const auto error = [&](const torch::Tensor& estimate) {
      return (estimate - batch.target).square().mean().item<double>();
    };
    // 120,000 squares: the mean is good to a hundredth of itself.
    EXPECT_NEAR(error(optimal_estimate(task, batch)) / optimal_error(task), 1, 0.02);
    EXPECT_NEAR(error(naive_estimate(task, batch)) / naive_error(task, noise), 1, 0.02);
  }
  EXPECT_DOUBLE_EQ(optimal_error({.size = 8, .relevant = 4, .sigma = 0.5}), 0.25 / 4.25);
  EXPECT_DOUBLE_EQ(naive_error({.size = 8, .relevant = 1, .sigma = 0}, 1), 0.5);
}

TEST(Denoise, MarksTellWhichTokensAreRelevant) {
  const DenoiseTask task{.size = 2, .relevant = 2, .sigma = 0};
  auto random = toy_random(0, "test");
  const auto batch = make_denoise_batch(task, 3, 2, random);
  EXPECT_TRUE(
      batch.tokens.select(2, 2).equal(torch::tensor({1.F, 1.F, -1.F, -1.F}).expand({3, 4})));
  EXPECT_TRUE(batch.tokens.select(1, 1).narrow(1, 0, 2).equal(batch.target));
  EXPECT_FALSE(batch.tokens.select(1, 2).narrow(1, 0, 2).equal(batch.target));
}

TEST(Graph, EveryNodeHasItsNumberOfNeighbours) {
  const Graph graph = make_graph(12, 4, 1);
  EXPECT_EQ(graph.degrees, (std::vector<int64_t>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  const auto counts = graph.transition.gt(0).sum(1);
  for (int64_t node = 0; node < 12; ++node) {
    EXPECT_EQ(counts[node].item<int64_t>(), graph.degrees[static_cast<size_t>(node)]);
    EXPECT_EQ(graph.transition[node][node].item<float>(), 0);
  }
  EXPECT_TRUE(graph.transition.sum(1).allclose(torch::ones({12})));
  EXPECT_FALSE(graph.transition.equal(make_graph(12, 4, 2).transition));
}

ToyInputs toy_inputs(int64_t n) {
  auto random = toy_random(7, "test");
  return {torch::randn({2, 1, 5}, random), torch::randn({2, n, 5}, random),
          torch::randn({2, 1, 1, 16}, random), torch::randn({2, 1, n, 16}, random),
          torch::randn({2, 1, n, 3}, random)};
}

TEST(ToyLayer, ScalesActAsTheAlgebraSays) {
  const ToyInputs in = toy_inputs(6);
  const ToyShape shape{.width = 5, .size = 16, .value_size = 3, .context = 6};
  const auto method = make_toy_method(parse_method("focal+value-scale:t=0.25:scale=0.5"), shape);
  const auto output = toy_attention(*method, in);
  const auto weights =
      torch::softmax(4 * torch::matmul(in.q, in.k.transpose(2, 3)) / 4, 3);  // s0 = 1/4, a_q = 4
  const auto expected = 0.5 * torch::matmul(weights, in.v).flatten(1);
  EXPECT_TRUE(output.out.allclose(expected, 1e-5, 1e-6));
  EXPECT_TRUE(output.a_q.allclose(torch::full({2}, 4.F)));
  EXPECT_TRUE(output.scales_values);
  EXPECT_TRUE(output.a_v.allclose(torch::full({2, 6}, 0.5F)));
  const auto chosen = torch::tensor({1.F, 0.F, 0.F, 1.F, 0.F, 0.F});
  EXPECT_TRUE(toy_weight_on(*method, in, chosen)
                  .allclose((weights.squeeze(1).squeeze(1) * chosen).sum(1), 1e-5, 1e-6));
}

TEST(ToyLayer, FrequenciesOfTokensAreRefused) {
  const ToyShape shape{.width = 5, .size = 16, .value_size = 3, .context = 6};
  EXPECT_THROW(make_toy_method(parse_method("ssa:f=feature"), shape), UsageError);
}

}  // namespace
}  // namespace tempera::study
