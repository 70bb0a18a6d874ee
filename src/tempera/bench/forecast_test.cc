#include "tempera/train/forecast.h"

#include <gtest/gtest.h>

#include "tempera/bench/memory.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

constexpr int64_t kRows = 8, kLength = 128;

nn::ModelConfig shape(int64_t layers, int64_t width, int64_t kv_heads, nn::Activation activation) {
  nn::ModelConfig config;
  config.vocabulary = 300;
  config.layers = layers;
  config.width = width;
  config.heads = 4;
  config.kv_heads = kv_heads;
  config.activation = activation;
  config.context = kLength;
  return config;
}

struct Case {
  const char* name;
  nn::ModelConfig model;
  config::Dtype dtype = config::Dtype::kFloat32;
};

class Activations : public testing::TestWithParam<Case> {};

TEST_P(Activations, AreThoseOfAPass) {
  const Case& given = GetParam();
  at::set_num_threads(1);
  const auto model = nn::make_model(given.model, 1);
  model->train();
  if (given.dtype == config::Dtype::kBfloat16) model->set_compute_type(torch::kBFloat16);
  const nn::Batch batch = nn::tiny_batch(kRows, kLength, given.model.vocabulary);
  for (const bool recompute : {false, true}) {
    model->set_recompute(recompute);
    // Gradients and tables are there from the first pass on.
    model->loss(batch).backward();
    const auto measured = static_cast<double>(peak_bytes([&] { model->loss(batch).backward(); }));
    constexpr double kTokens = kRows * kLength;
    // The logits are few, and gone when a block goes back.
    const double expected = train::activation_bytes(given.model, kTokens, given.dtype, recompute);
    EXPECT_NEAR(measured / expected, 1, 0.2) << given.name << (recompute ? ", recomputed" : "");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Activations,
                         testing::Values(Case{"small", shape(4, 64, 0, nn::Activation::kSwiglu)},
                                         Case{"deep", shape(12, 64, 0, nn::Activation::kSwiglu)},
                                         Case{"wide", shape(4, 128, 0, nn::Activation::kSwiglu)},
                                         Case{"shared_keys",
                                              shape(6, 128, 1, nn::Activation::kSwiglu)},
                                         Case{"gelu", shape(4, 128, 0, nn::Activation::kGelu)}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace tempera::bench
