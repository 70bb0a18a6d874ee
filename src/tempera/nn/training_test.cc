#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tempera/nn/dropout.h"
#include "tempera/nn/recompute.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

using Gradients = std::map<std::string, torch::Tensor>;

// The loss and all gradients of a pass in training mode.
std::pair<torch::Tensor, Gradients> gradients(Model& model, const Batch& batch) {
  model.train();
  model.zero_grad();
  const auto loss = model.loss(batch);
  loss.backward();
  Gradients found;
  for (const auto& parameter : model.parameter_list())
    if (parameter.tensor.grad().defined()) found[parameter.name] = parameter.tensor.grad().clone();
  return {loss.detach(), found};
}

// Every value of every option, by name.
std::map<std::string, std::function<void(ModelConfig&)>> option_values() {
  return {{"default", [](auto&) {}},
          {"layer norm", [](auto& c) { c.norm = NormKind::kLayer; }},
          {"post norm", [](auto& c) { c.norm_placement = NormPlacement::kPost; }},
          {"output norm", [](auto& c) { c.norm_placement = NormPlacement::kOutput; }},
          {"both norms", [](auto& c) { c.norm_placement = NormPlacement::kBoth; }},
          {"parallel residual", [](auto& c) { c.parallel_residual = true; }},
          {"qk-norm wide", [](auto& c) { c.qk_norm = QkNorm::kWide; }},
          {"input biases", [](auto& c) { c.attention_bias = AttentionBias::kInputs; }},
          {"geglu-tanh", [](auto& c) { c.activation = Activation::kGegluTanh; }},
          {"yarn",
           [](auto& c) {
             c.rope.scaling = RopeScaling::kYarn;
             c.rope.factor = 4;
             c.rope.original_context = 16;
           }},
          {"scales",
           [](auto& c) {
             c.embedding_scale = 3;
             c.residual_scale = 0.7;
             c.logit_scale = 0.5;
             c.attention_scale = 0.1;
           }},
          {"caps", [](auto& c) { c.attention_cap = c.logit_cap = 2; }},
          {"windows in some layers",
           [](auto& c) {
             c.window = 3;
             c.window_layers = "0";
           }},
          {"qk-norm plain", [](auto& c) { c.qk_norm = QkNorm::kPlain; }},
          {"qk-norm gain", [](auto& c) { c.qk_norm = QkNorm::kGain; }},
          {"learned", [](auto& c) { c.position = PositionKind::kLearned; }},
          {"sinusoidal", [](auto& c) { c.position = PositionKind::kSinusoidal; }},
          {"t5", [](auto& c) { c.position = PositionKind::kT5; }},
          {"no positions", [](auto& c) { c.position = PositionKind::kNone; }},
          {"partial rotary", [](auto& c) { c.rope.fraction = 0.5; }},
          {"gelu", [](auto& c) { c.activation = Activation::kGelu; }},
          {"gelu-tanh", [](auto& c) { c.activation = Activation::kGeluTanh; }},
          {"biases",
           [](auto& c) {
             c.attention_bias = AttentionBias::kAll;
             c.mlp_bias = true;
           }},
          {"untied", [](auto& c) { c.tied_embeddings = false; }},
          {"token shift", [](auto& c) { c.token_shift = true; }},
          {"grouped", [](auto& c) { c.kv_heads = 1; }},
          {"head size", [](auto& c) { c.head_size = 24; }},
          {"window", [](auto& c) { c.window = 3; }},
          {"fan-in", [](auto& c) { c.init = InitKind::kFanIn; }},
          {"temperature", [](auto& c) { c.temperature.method = "ssa"; }},
          {"second layer",
           [](auto& c) {
             c.temperature = {"ssa", "1-", {}};
           }},
          {"dropout",
           [](auto& c) { c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0.1; }}};
}

// Repeat the token before: something that every model learns a little of in one step.
TEST(Training, EveryOptionTrainsAStep) {
  for (const auto& [name, change] : option_values()) {
    auto config = tiny_config();
    change(config);
    const auto model = make_model(config, 11);
    auto batch = tiny_batch(4, 10);
    batch.targets =
        torch::cat({torch::full({4, 1}, -100, torch::kInt64), batch.tokens.narrow(1, 0, 9)}, 1);
    const auto [before, found] = gradients(*model, batch);
    EXPECT_EQ(found.size(), model->parameter_list().size()) << name;
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : model->parameter_list()) {
      EXPECT_TRUE(found.at(parameter.name).isfinite().all().item<bool>()) << name;
      EXPECT_GT(found.at(parameter.name).abs().max().item<double>(), 0)
          << name << ": no gradient in " << parameter.name;
      parameter.tensor.sub_(found.at(parameter.name), 0.05);
    }
    EXPECT_LT(model->loss(batch).item<double>(), before.item<double>()) << name;
  }
}

TEST(Training, GradientsReachEveryMethod) {
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = moved_model(with_method(tiny_config(), method, options));
    const auto [loss, found] = gradients(*model, tiny_batch());
    for (const auto& parameter : model->parameter_list()) {
      ASSERT_TRUE(found.contains(parameter.name)) << method << " " << parameter.name;
      EXPECT_GT(found.at(parameter.name).abs().max().item<double>(), 0)
          << method << " " << parameter.name;
    }
  }
}

TEST(Training, RecomputingGivesTheSameBits) {
  for (const auto& [name, change] : option_values()) {
    auto config = with_method(tiny_config(), "ssa+focal-learned");
    change(config);
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0.2;
    const auto model = make_model(config, 3);
    auto batch = tiny_batch();
    batch.dropout_seed = 42;
    batch.documents = torch::tensor({{5, 7}, {12, 0}, {1, 11}});
    const auto [loss, plain] = gradients(*model, batch);
    model->set_recompute(true);
    const auto [loss_again, again] = gradients(*model, batch);
    EXPECT_TRUE(torch::equal(loss, loss_again)) << name;
    ASSERT_EQ(plain.size(), again.size()) << name;
    for (const auto& [parameter, gradient] : plain)
      EXPECT_TRUE(torch::equal(gradient, again.at(parameter))) << name << " " << parameter;
  }
}

TEST(Training, RecomputingWorksWithFrozenPartsAndPartialGradients) {
  const auto model = make_model(with_method(tiny_config(), "ssa"), 3);
  std::vector<torch::Tensor> learned;
  for (const auto& parameter : model->parameter_list()) {
    parameter.tensor.requires_grad_(parameter.kind == ParameterKind::kTemperature);
    if (parameter.tensor.requires_grad()) learned.push_back(parameter.tensor);
  }
  const auto batch = tiny_batch();
  const auto plain = torch::autograd::grad({model->loss(batch)}, learned);
  model->set_recompute(true);
  const auto again = torch::autograd::grad({model->loss(batch)}, learned);
  for (size_t i = 0; i < learned.size(); ++i) EXPECT_TRUE(torch::equal(plain[i], again[i]));
}

TEST(Training, RecomputingRunsThePassAgainAndKeepsNothing) {
  const auto weight = torch::full({3}, 2.0).requires_grad_();
  const auto x = torch::tensor({1.0, 2.0, 3.0}).requires_grad_();
  int runs = 0;
  const auto pass = [&](const std::vector<torch::Tensor>& inputs) {
    ++runs;
    return inputs[0] * weight;
  };
  const auto out = recomputed(pass, {x}, {weight});
  EXPECT_EQ(runs, 1);
  out.sum().backward();
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(torch::equal(x.grad(), weight.detach()));
  EXPECT_TRUE(torch::equal(weight.grad(), x.detach()));
}

TEST(Dropout, IsAFunctionOfTheSeed) {
  auto config = tiny_config();
  config.dropout_residual = 0.5;
  const auto model = make_model(config, 1);
  auto batch = tiny_batch();
  const auto loss = [&](uint64_t seed) {
    batch.dropout_seed = seed;
    return model->loss(batch).item<float>();
  };
  model->train();
  EXPECT_EQ(loss(1), loss(1));
  EXPECT_NE(loss(1), loss(2));
  model->eval();
  EXPECT_EQ(loss(1), loss(2));
}

TEST(Dropout, KeepsTheMeanAndTheShare) {
  const auto out = seeded_dropout(torch::ones({1000, 100}), 0.3, 5);
  EXPECT_NEAR(out.eq(0).to(torch::kFloat64).mean().item<double>(), 0.3, 0.01);
  EXPECT_NEAR(out.mean().item<double>(), 1, 0.02);
  EXPECT_NE(dropout_seed(1, 0, DropoutSite::kMlpOutput),
            dropout_seed(1, 1, DropoutSite::kMlpOutput));
  EXPECT_NE(dropout_seed(1, 0, DropoutSite::kMlpOutput),
            dropout_seed(1, 0, DropoutSite::kAttentionOutput));
}

// A part of a batch may have none, as where answers alone are learned.
TEST(Loss, IsZeroWithoutTargets) {
  for (const char* what : {"default", "caps"}) {
    ModelConfig config = tiny_config();
    option_values().at(what)(config);
    const auto model = make_model(config, 3);
    Batch batch = tiny_batch();
    const auto targets = batch.targets.clone();
    batch.targets.fill_(-100);
    const auto [loss, found] = gradients(*model, batch);
    EXPECT_EQ(loss.item<double>(), 0) << what;
    for (const auto& [name, gradient] : found)
      EXPECT_EQ(gradient.abs().max().item<double>(), 0) << what << " " << name;
    batch.targets = targets;
    batch.targets.select(1, 2).fill_(-100);
    model->eval();
    const double all = model->token_losses(batch).sum().item<double>();
    const auto count = batch.targets.ge(0).sum().item<int64_t>();
    EXPECT_NEAR(model->loss(batch).item<double>(), all / static_cast<double>(count), 1e-5) << what;
  }
}

}  // namespace
}  // namespace tempera::nn
