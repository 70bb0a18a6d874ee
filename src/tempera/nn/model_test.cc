#include "tempera/nn/model.h"

#include <gtest/gtest.h>

#include <functional>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

TEST(Model, ShapesAndDeterminism) {
  const auto batch = tiny_batch();
  const auto first = eval_logits(*make_model(tiny_config(), 3), batch);
  EXPECT_EQ(first.sizes(), (torch::IntArrayRef{3, 12, 11}));
  EXPECT_TRUE(first.isfinite().all().item<bool>());
  EXPECT_TRUE(torch::equal(first, eval_logits(*make_model(tiny_config(), 3), batch)));
  EXPECT_FALSE(torch::equal(first, eval_logits(*make_model(tiny_config(), 4), batch)));
}

TEST(Model, RowsOfALongTextGoThroughTheMlpInParts) {
  auto config = tiny_config();
  config.width = config.mlp_size = 4;
  const Mlp mlp(config);
  for (const auto& weight : mlp.parameters()) weight.detach().uniform_(-1, 1);
  constexpr int64_t kRows = 20000;
  const auto rows = torch::linspace(-1, 1, kRows * 8).view({2, kRows, 4});
  const auto whole = mlp.forward(rows).detach();
  const torch::NoGradGuard no_grad;
  EXPECT_LT(largest_difference(mlp.forward(rows), whole), 1e-6);
  EXPECT_GT(whole.abs().max().item<double>(), 0.1);
}

TEST(Model, AnotherWeightHasTheSameSizes) {
  Linear linear(3, 4, /*bias=*/true);
  Embedding table(4, 3);
  linear.set_weight(torch::ones({4, 3}));
  table.set_weight(torch::ones({4, 3}));
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 4}, {4, 4}, {5, 3}, {12}}) {
    EXPECT_THROW(linear.set_weight(torch::ones(sizes)), Error);
    EXPECT_THROW(table.set_weight(torch::ones(sizes)), Error);
  }
  EXPECT_EQ(linear.parameters()[0].sizes(), linear.weight().sizes());
}

TEST(Model, AllMethodsStartFromTheSameWeights) {
  const auto plain = make_model(tiny_config(), 5);
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = make_model(with_method(tiny_config(), method, options), 5);
    size_t same = 0;
    for (const auto& parameter : model->parameter_list()) {
      if (parameter.kind == ParameterKind::kTemperature) continue;
      EXPECT_TRUE(torch::equal(parameter.tensor, plain->state().at(parameter.name)))
          << method << " " << parameter.name;
      ++same;
    }
    EXPECT_EQ(same, plain->parameter_list().size());
  }
}

TEST(Model, NoEarlierRowMovesWithALaterToken) {
  for (const auto& [method, options] : causal_method_cases()) {
    auto config = with_method(tiny_config(), method, options);
    config.token_shift = true;
    const auto model = moved_model(config);
    auto batch = tiny_batch();
    const auto before = eval_logits(*model, batch);
    batch.tokens = batch.tokens.clone();
    batch.tokens.select(1, 7).add_(1).remainder_(11);
    const auto after = eval_logits(*model, batch);
    EXPECT_TRUE(torch::equal(before.narrow(1, 0, 7), after.narrow(1, 0, 7))) << method;
    for (int64_t row = 7; row < 12; ++row)
      EXPECT_GT(largest_difference(before.select(1, row), after.select(1, row)), 1e-6)
          << method << " row " << row;
  }
}

// Each position coding and method, one document after another against each alone.
TEST(Model, PackedDocumentsEqualSeparateSequences) {
  std::vector<ModelConfig> configs;
  for (const auto& [method, options] : causal_method_cases())
    configs.push_back(with_method(tiny_config(), method, options));
  for (const auto position : {PositionKind::kLearned, PositionKind::kSinusoidal, PositionKind::kT5,
                              PositionKind::kNone}) {
    configs.push_back(with_method(tiny_config(), "ssa"));
    configs.back().position = position;
    configs.back().token_shift = true;
    configs.back().window = 4;
  }
  for (const auto& config : configs) expect_documents_apart(config, 2e-5);
}

TEST(Model, PaddingChangesNothing) {
  auto config = with_method(tiny_config(), "ssa+focal-learned");
  config.token_shift = true;
  for (const auto position : {PositionKind::kRope, PositionKind::kLearned, PositionKind::kT5}) {
    config.position = position;
    const auto model = moved_model(config);
    Batch plain, padded;
    plain.tokens = token_pattern(1, 6, 11);
    padded.tokens = torch::constant_pad_nd(plain.tokens, {3, 2}, 1);
    padded.key_start = torch::tensor({3});
    padded.key_end = torch::tensor({9});
    EXPECT_LT(
        largest_difference(eval_logits(*model, padded).narrow(1, 3, 6), eval_logits(*model, plain)),
        2e-5);
  }
}

// Grouped heads are plain heads whose keys and values repeat.
TEST(Model, GroupedHeadsEqualRepeatedOnes) {
  auto config = with_method(tiny_config(), "focal");
  config.heads = 4;
  config.head_size = 16;
  config.kv_heads = 2;
  const auto grouped = make_model(config, 1);
  config.kv_heads = 4;
  const auto full = make_model(config, 1);
  auto state = grouped->state();
  for (auto& [name, tensor] : state) {
    if (name.find("qkv") == std::string::npos) continue;
    const auto kv = tensor.narrow(0, 64, 64).view({2, 2, 16, 32}).repeat_interleave(2, 1);
    tensor = torch::cat({tensor.narrow(0, 0, 64), kv.reshape({128, 32})});
  }
  full->load_state(state);
  const auto batch = tiny_batch();
  EXPECT_LT(largest_difference(eval_logits(*grouped, batch), eval_logits(*full, batch)), 1e-5);
}

TEST(Model, LossIsTheMeanOverTheTargets) {
  const auto model = make_model(tiny_config(), 2);
  model->eval();
  auto batch = tiny_batch();
  batch.targets = batch.targets.clone();
  batch.targets.narrow(1, 0, 9).fill_(-100);
  const auto log_p = eval_logits(*model, batch).log_softmax(-1);
  const auto picked = -log_p.gather(2, batch.targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  const auto scored = batch.targets.ne(-100);
  const double expected = picked.masked_select(scored).mean().item<double>();
  EXPECT_NEAR(model->loss(batch).item<double>(), expected, 1e-5);
  const auto losses = model->token_losses(batch);
  EXPECT_LT(largest_difference(losses, picked * scored), 1e-5);
  const double uniform = -log_p.mean(-1).masked_select(scored).mean().item<double>();
  EXPECT_NEAR(model->loss(batch, 0.1).item<double>(), 0.9 * expected + 0.1 * uniform, 1e-5);
  batch.targets.fill_(-100);
  EXPECT_EQ(model->loss(batch).item<double>(), 0);
}

TEST(Model, LossCountsATargetAsMuchAsItsShare) {
  auto config = tiny_config();
  for (const double cap : {0.0, 5.0}) {
    config.logit_cap = cap;
    const auto model = make_model(config, 2);
    auto batch = tiny_batch();
    batch.targets = batch.targets.clone();
    batch.targets.narrow(1, 0, 3).fill_(-100);
    batch.shares = torch::arange(36).remainder(4).to(torch::kFloat32).view({3, 12});
    const auto shares = batch.shares * batch.targets.ge(0);
    const double expected =
        ((model->token_losses(batch) * shares).sum() / shares.sum()).item<double>();
    EXPECT_NEAR(model->loss(batch).item<double>(), expected, 1e-5) << cap;
    EXPECT_GT(std::abs(model->token_losses(batch).sum().item<double>() / 27 - expected), 1e-3);
    batch.shares.zero_();
    EXPECT_EQ(model->loss(batch).item<double>(), 0);
  }
}

TEST(Model, StateIsStrictAndComplete) {
  const auto config = with_method(tiny_config(), "ssa");
  const auto model = make_model(config, 1);
  const auto other = make_model(config, 2);
  EXPECT_TRUE(model->state().contains("layers.1.attention.temperature.q_w"));
  EXPECT_TRUE(model->state().contains("layers.0.attention.qkv.weight"));
  other->load_state(model->state());
  const auto batch = tiny_batch();
  EXPECT_TRUE(torch::equal(eval_logits(*model, batch), eval_logits(*other, batch)));
  auto state = model->state();
  state.erase("norm.weight");
  EXPECT_THROW(other->load_state(state), Error);
  state = model->state();
  state["surplus"] = torch::zeros({1});
  EXPECT_THROW(other->load_state(state), Error);
  state = model->state();
  state["norm.weight"] = torch::zeros({31});
  EXPECT_THROW(other->load_state(state), Error);
}

TEST(Model, PhonebookModelIsAsDescribed) {
  auto config = phonebook_model();
  const auto model = make_model(config, 1);
  const int64_t d = 64;
  // Table, shift, two block norms, the last norm, q k v and out, MLP with biases, head.
  EXPECT_EQ(model->parameter_count(),
            2064 * d + d + 3 * d + 4 * d * d + (d * 128 + 128) + (128 * d + d) + 16 * d);
  const auto state = model->state();
  EXPECT_EQ(state.size(), 12U);
  EXPECT_EQ(state.at("shift").sizes(), (torch::IntArrayRef{d}));
  EXPECT_NEAR(state.at("embedding.weight").std().item<double>(), 1.0 / 8, 1e-3);
  EXPECT_NEAR(state.at("shift").std().item<double>(), 1, 0.3);
  const auto bound_of = [&](const char* name) { return state.at(name).abs().max().item<double>(); };
  EXPECT_NEAR(bound_of("layers.0.attention.qkv.weight"), 0.125, 1e-3);
  EXPECT_NEAR(bound_of("layers.0.mlp.out.weight"), 1 / std::sqrt(128.0), 1e-3);
  EXPECT_NEAR(bound_of("layers.0.mlp.in.bias"), 0.125, 5e-3);
  EXPECT_NEAR(bound_of("head.weight"), 0.125, 1e-3);
  // Under 0.5 % more with SSA: w and alpha for q and v, a head each.
  config.temperature.method = "ssa";
  const auto ssa = make_model(config, 1);
  EXPECT_EQ(ssa->temperature_parameter_count(), 2 * 4 * (16 + 1));
  EXPECT_EQ(ssa->parameter_count(), model->parameter_count() + 136);
}

// Without positions and with one layer the order of the entries means nothing beyond the shift.
TEST(Model, TokenShiftAddsTheTokenBefore) {
  const auto model = make_model(phonebook_model(), 1);
  Batch batch;
  batch.tokens = torch::tensor({{20, 3, 20, 3, 21, 4, 20}});
  const auto weights = model->state();
  torch::Tensor x;
  model->hidden(batch, [&](int64_t layer, const torch::Tensor& output) {
    if (layer == -1) x = output.detach()[0];
  });
  const auto& table = weights.at("embedding.weight");
  EXPECT_TRUE(torch::equal(x[0], table[20]));
  EXPECT_LT(largest_difference(x[1], table[3] + weights.at("shift") * table[20]), 1e-6);
  EXPECT_TRUE(torch::equal(x[1], x[3]));
  EXPECT_FALSE(torch::equal(x[0], x[2]));
}

TEST(Model, ParametersAreSortedByKind) {
  auto config = with_method(tiny_config(), "ssa");
  config.position = PositionKind::kT5;
  config.attention_bias = AttentionBias::kAll;
  config.tied_embeddings = false;
  std::map<std::string, ParameterKind> kinds;
  for (const auto& parameter : make_model(config, 1)->parameter_list())
    kinds[parameter.name] = parameter.kind;
  EXPECT_EQ(kinds.at("embedding.weight"), ParameterKind::kEmbedding);
  EXPECT_EQ(kinds.at("head.weight"), ParameterKind::kEmbedding);
  EXPECT_EQ(kinds.at("layers.0.mlp.in.weight"), ParameterKind::kMatrix);
  EXPECT_EQ(kinds.at("layers.0.attention.qkv.bias"), ParameterKind::kVector);
  EXPECT_EQ(kinds.at("relative_bias.weight"), ParameterKind::kVector);
  EXPECT_EQ(kinds.at("layers.0.attention.temperature.q_w"), ParameterKind::kTemperature);
  EXPECT_TRUE(is_decayed(ParameterKind::kEmbedding));
  EXPECT_FALSE(is_decayed(ParameterKind::kTemperature));
}

TEST(Model, RefusesWhatItCannotTake) {
  auto config = tiny_config();
  config.position = PositionKind::kLearned;
  const auto model = make_model(config, 1);
  EXPECT_THROW(model->hidden(tiny_batch(1, 65)), Error);
  EXPECT_THROW(model->set_context(128, {}), Error);
  Batch empty;
  EXPECT_THROW(model->hidden(empty), Error);
  auto batch = tiny_batch();
  batch.targets.reset();
  EXPECT_THROW(model->loss(batch), Error);
}

TEST(Model, ContextStagesChangeTheRotaryBase) {
  const auto model = make_model(tiny_config(), 1);
  const auto batch = tiny_batch();
  const auto before = eval_logits(*model, batch);
  model->set_context(128, {.base = 40000});
  EXPECT_EQ(model->config().context, 128);
  EXPECT_GT(largest_difference(before, eval_logits(*model, batch)), 1e-5);
  model->set_context(64, {});
  EXPECT_TRUE(torch::equal(before, eval_logits(*model, batch)));
}

TEST(Model, ComputesInBfloat16WithWideWeights) {
  const auto model = make_model(with_method(tiny_config(), "ssa"), 1);
  const auto batch = tiny_batch();
  const auto wide = eval_logits(*model, batch);
  model->set_compute_type(torch::kBFloat16);
  const auto narrow = eval_logits(*model, batch);
  EXPECT_EQ(narrow.scalar_type(), torch::kBFloat16);
  EXPECT_LT(largest_difference(wide, narrow.to(torch::kFloat32)),
            0.05 * wide.abs().max().item<double>());
  model->train();
  model->loss(batch).backward();
  for (const auto& parameter : model->parameter_list())
    EXPECT_EQ(parameter.tensor.grad().scalar_type(), torch::kFloat32) << parameter.name;
}

TEST(Model, FrozenMatricesKeepTheirDigitsBesideTheRoundedOnes) {
  ModelConfig config = tiny_config();
  config.mlp_bias = true;
  const auto made = [&](bool gains_are_learned) {
    auto model = make_model(config, 3);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameter_list()) {
      if (parameter.kind == ParameterKind::kVector) parameter.tensor.add_(0.123);
      parameter.tensor.requires_grad_(gains_are_learned && parameter.name.ends_with("norm.weight"));
    }
    return model;
  };
  const auto plain = made(false), frozen = made(false), calibrated = made(true);
  plain->set_compute_type(torch::kBFloat16);
  frozen->round_frozen(torch::kBFloat16);
  calibrated->round_frozen(torch::kBFloat16);
  for (const auto& parameter : frozen->parameter_list())
    EXPECT_EQ(parameter.tensor.scalar_type(),
              parameter.kind == ParameterKind::kVector ? torch::kFloat32 : torch::kBFloat16)
        << parameter.name;
  const auto state = plain->state();
  for (const auto& [name, tensor] : frozen->state())
    EXPECT_TRUE(torch::equal(tensor, state.at(name))) << name;
  // What is measured before and after learning is computed alike.
  const auto wanted = eval_logits(*plain, tiny_batch());
  EXPECT_TRUE(torch::equal(eval_logits(*frozen, tiny_batch()), wanted));
  EXPECT_TRUE(torch::equal(eval_logits(*calibrated, tiny_batch()), wanted));

  const auto other = make_model(config, 4);
  other->set_compute_type(torch::kBFloat16);
  calibrated->load_state(other->state());
  for (const auto& [name, tensor] : calibrated->state())
    EXPECT_TRUE(torch::equal(tensor, other->state().at(name))) << name;
  EXPECT_TRUE(
      torch::equal(eval_logits(*calibrated, tiny_batch()), eval_logits(*other, tiny_batch())));
}

}  // namespace
}  // namespace tempera::nn
