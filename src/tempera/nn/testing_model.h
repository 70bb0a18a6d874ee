#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

// Small models and batches for tests.
namespace tempera::nn {

inline ModelConfig tiny_config() {
  ModelConfig config;
  config.vocabulary = 11;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.mlp_size = 48;
  config.context = 64;
  config.init_std = 0.2;  // large enough that every part shows in the logits
  return config;
}

inline ModelConfig with_method(ModelConfig config, const std::string& method,
                               const MethodOptions& options = {}) {
  config.temperature.method = method;
  config.temperature.options = options;
  return config;
}

// Models whose rotary frequencies depend on the length of a sequence: those of 16 rows and fewer
// are others than those of more.
inline std::vector<ModelConfig> length_dependent_configs() {
  ModelConfig dynamic = with_method(tiny_config(), "ssa");
  dynamic.context = 16;
  dynamic.rope.scaling = RopeScaling::kDynamic;
  dynamic.rope.factor = 4;
  ModelConfig two_lists = with_method(tiny_config(), "ssa");
  two_lists.rope.scaling = RopeScaling::kFactors;
  two_lists.rope.original_context = 16;
  two_lists.rope.factors = std::vector<double>(8, 4);
  two_lists.rope.short_factors = std::vector<double>(8, 1);
  return {dynamic, two_lists};
}

// Token ids that look random and are not.
inline torch::Tensor token_pattern(int64_t batch, int64_t length, int64_t vocabulary,
                                   double phase = 0) {
  const auto index = torch::arange(batch * length, torch::kFloat64);
  return ((index * 12.9898 + phase).sin() * 43758.5453)
      .floor()
      .to(torch::kInt64)
      .remainder(vocabulary)
      .view({batch, length});
}

inline Batch tiny_batch(int64_t batch = 3, int64_t length = 12, int64_t vocabulary = 11) {
  Batch made;
  made.tokens = token_pattern(batch, length, vocabulary);
  made.targets = token_pattern(batch, length, vocabulary, 1.0);
  return made;
}

struct MethodCase {
  std::string method;
  MethodOptions options;
};

// Every registered method with every variant that a causal model takes.
inline std::vector<MethodCase> causal_method_cases() {
  std::vector<MethodCase> cases;
  for (const auto& entry : method_registry())
    for (const auto& variant : entry.variants) cases.push_back({entry.name, variant});
  cases.push_back({"head,value", {}});
  cases.push_back({"ssa+focal-learned", {}});
  return cases;
}

// A model whose temperature parameters are not at their start, where some have no effect.
inline std::shared_ptr<Model> moved_model(const ModelConfig& config) {
  auto model = make_model(config, 7);
  const torch::NoGradGuard no_grad;
  for (auto* method : model->methods()) {
    method->set_token_counts(torch::arange(config.vocabulary) * 3);
    for (auto& parameter : method->parameters())
      parameter.add_(torch::linspace(-0.3, 0.4, parameter.numel()).view_as(parameter));
  }
  return model;
}

inline double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

inline torch::Tensor eval_logits(Model& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  model.eval();
  return model.logits(batch);
}

// One document after another gives what each gives alone.
inline void expect_documents_apart(const ModelConfig& config, double tolerance) {
  const auto model = moved_model(config);
  Batch packed;
  packed.tokens = token_pattern(2, 10, 11);
  packed.documents = torch::tensor({{4, 6, 0}, {3, 3, 4}});
  const auto together = eval_logits(*model, packed);
  for (const auto& [row, first, length] :
       std::vector<std::array<int64_t, 3>>{{0, 0, 4}, {0, 4, 6}, {1, 3, 3}, {1, 6, 4}}) {
    Batch alone;
    alone.tokens = packed.tokens.narrow(0, row, 1).narrow(1, first, length);
    EXPECT_LT(
        largest_difference(eval_logits(*model, alone)[0], together[row].narrow(0, first, length)),
        tolerance)
        << config.temperature.method << " document at " << first;
  }
}

}  // namespace tempera::nn
