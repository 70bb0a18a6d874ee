#include "tempera/nn/encoder.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <array>

#include "tempera/base/error.h"
#include "tempera/nn/pooling.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// As BERT: norms behind the sums, learned positions, two kinds of tokens.
ModelConfig bert_config() {
  auto config = tiny_config();
  config.kind = ModelKind::kEncoder;
  config.norm = NormKind::kLayer;
  config.norm_placement = NormPlacement::kPost;
  config.embedding_norm = true;
  config.position = PositionKind::kLearned;
  config.activation = Activation::kGelu;
  config.attention_bias = AttentionBias::kAll;
  config.mlp_bias = true;
  config.token_types = 2;
  config.head_transform = true;
  return config;
}

ModelConfig rotary_encoder() {
  auto config = tiny_config();
  config.kind = ModelKind::kEncoder;
  return config;
}

TEST(Encoder, EveryRowSeesEveryOther) {
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = moved_model(with_method(bert_config(), method, options));
    auto batch = tiny_batch();
    const auto before = eval_logits(*model, batch);
    batch.tokens = batch.tokens.clone();
    batch.tokens.select(1, 7).add_(1).remainder_(11);
    const auto after = eval_logits(*model, batch);
    for (int64_t row = 0; row < 12; ++row)
      EXPECT_GT(largest_difference(before.select(1, row), after.select(1, row)), 1e-6)
          << method << " row " << row;
  }
}

TEST(Encoder, PackedDocumentsEqualSeparateSequences) {
  std::vector<ModelConfig> configs;
  for (const auto& [method, options] : causal_method_cases())
    configs.push_back(with_method(bert_config(), method, options));
  for (const auto position : {PositionKind::kRope, PositionKind::kT5}) {
    configs.push_back(with_method(rotary_encoder(), "ssa"));
    configs.back().position = position;
    configs.back().window = 3;
  }
  for (const auto& config : configs) expect_documents_apart(config, 3e-5);
}

TEST(Encoder, PaddingChangesNothing) {
  for (const auto& [method, options] : causal_method_cases()) {
    auto config = with_method(bert_config(), method, options);
    config.pooler = true;
    for (const auto head : {HeadKind::kTokens, HeadKind::kSequence}) {
      config.head = head;
      config.head_transform = head == HeadKind::kTokens;
      config.outputs = head == HeadKind::kTokens ? 0 : 3;
      const auto model = moved_model(config);
      Batch plain, padded;
      plain.tokens = token_pattern(1, 6, 11);
      padded.tokens = torch::constant_pad_nd(plain.tokens, {3, 2}, 1);
      padded.key_start = torch::tensor({3});
      padded.key_end = torch::tensor({9});
      auto found = eval_logits(*model, padded);
      if (head == HeadKind::kTokens) found = found.narrow(1, 3, 6);
      EXPECT_LT(largest_difference(found, eval_logits(*model, plain)), 3e-5) << method;
    }
  }
}

// The contract of the methods, on a whole encoder.
TEST(Encoder, ATemperatureOfOneGivesThePlainBits) {
  const auto batch = tiny_batch();
  const auto plain = make_model(bert_config(), 5);
  const auto logits = eval_logits(*plain, batch);
  for (const auto& entry : method_registry()) {
    if (!entry.plain) continue;
    const auto model = make_model(with_method(bert_config(), entry.name, *entry.plain), 5);
    EXPECT_TRUE(torch::equal(eval_logits(*model, batch), logits)) << entry.name;
  }
  const auto focal = make_model(with_method(bert_config(), "focal", {{"t", 0.5}}), 5);
  EXPECT_GT(largest_difference(eval_logits(*focal, batch), logits), 1e-3);
}

TEST(Encoder, LossIsThatOfTheScoredRows) {
  const auto model = make_model(bert_config(), 2);
  model->eval();
  auto batch = tiny_batch();
  batch.targets = batch.targets.clone();
  batch.targets.narrow(1, 0, 8).fill_(-100);
  const auto losses = model->token_losses(batch);
  const auto log_p = eval_logits(*model, batch).log_softmax(-1);
  const auto wanted = -log_p.gather(2, batch.targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  const auto scored = batch.targets.ne(-100);
  EXPECT_LT(largest_difference(losses, wanted * scored), 1e-5);
  EXPECT_NEAR(model->loss(batch).item<double>(), wanted.masked_select(scored).mean().item<double>(),
              1e-5);
}

TEST(Encoder, ClassifiesSequences) {
  for (const bool pooler : {true, false}) {
    auto config = bert_config();
    config.head = HeadKind::kSequence;
    config.head_transform = false;
    config.outputs = 3;
    config.pooler = pooler;
    const auto model = make_model(config, 2);
    auto batch = tiny_batch();
    batch.targets = torch::tensor({0, 2, 1});
    const auto logits = eval_logits(*model, batch);
    EXPECT_EQ(logits.sizes(), (torch::IntArrayRef{3, 3}));
    const double expected =
        torch::nn::functional::cross_entropy(logits, batch.targets).item<double>();
    EXPECT_NEAR(model->loss(batch).item<double>(), expected, 1e-6);
    batch.targets = tiny_batch().targets;
    EXPECT_THROW(model->loss(batch), Error);
  }
}

TEST(Encoder, GradientsReachEveryPart) {
  for (const auto& [method, options] : causal_method_cases()) {
    auto config = with_method(bert_config(), method, options);
    const auto model = moved_model(config);
    auto batch = tiny_batch();
    batch.types = batch.tokens.remainder(2);
    model->loss(batch).backward();
    for (const auto& parameter : model->parameter_list()) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << method << " " << parameter.name;
      EXPECT_GT(parameter.tensor.grad().abs().max().item<double>(), 0)
          << method << " " << parameter.name;
    }
  }
}

TEST(Encoder, TypesAreAddedAndDefaultToTheFirst) {
  const auto model = make_model(bert_config(), 3);
  auto batch = tiny_batch();
  const auto plain = eval_logits(*model, batch);
  batch.types = torch::zeros_like(batch.tokens);
  EXPECT_TRUE(torch::equal(eval_logits(*model, batch), plain));
  batch.types = torch::ones_like(batch.tokens);
  EXPECT_GT(largest_difference(eval_logits(*model, batch), plain), 1e-4);
  EXPECT_THROW(eval_logits(*make_model(rotary_encoder(), 3), batch), Error);
}

TEST(Encoder, WithoutAHeadHasHiddenStatesAlone) {
  auto config = bert_config();
  config.head = HeadKind::kNone;
  config.head_transform = false;
  const auto model = make_model(config, 3);
  model->eval();
  EXPECT_EQ(model->hidden(tiny_batch()).sizes(), (torch::IntArrayRef{3, 12, 32}));
  EXPECT_FALSE(model->state().contains("head_bias"));
  EXPECT_THROW(model->logits(tiny_batch()), Error);
  EXPECT_THROW(model->make_cache(1, 8), Error);
}

TEST(Encoder, RefusesWhatOnlyOthersHave) {
  auto config = tiny_config();
  config.pooler = true;
  EXPECT_THROW(make_model(config, 1), UsageError);
  config = rotary_encoder();
  config.head_transform = true;  // behind a gated activation
  EXPECT_THROW(make_model(config, 1), UsageError);
  config = rotary_encoder();
  config.decoder_layers = 2;
  EXPECT_THROW(make_model(config, 1), UsageError);
}

TEST(Pooling, LeavesPaddingOut) {
  const auto hidden = torch::arange(24, torch::kFloat32).view({2, 4, 3});
  Batch batch;
  batch.tokens = torch::zeros({2, 4}, torch::kInt64);
  EXPECT_TRUE(torch::equal(pool(hidden, batch, Pooling::kMean), hidden.mean(1)));
  EXPECT_TRUE(torch::equal(pool(hidden, batch, Pooling::kFirst), hidden.select(1, 0)));
  batch.key_start = torch::tensor({0, 1});
  batch.key_end = torch::tensor({2, 4});
  const auto mean = pool(hidden, batch, Pooling::kMean);
  EXPECT_TRUE(torch::equal(mean[0], hidden[0].narrow(0, 0, 2).mean(0)));
  EXPECT_TRUE(torch::equal(mean[1], hidden[1].narrow(0, 1, 3).mean(0)));
  EXPECT_TRUE(torch::equal(pool(hidden, batch, Pooling::kFirst)[1], hidden[1][1]));
  batch.documents = torch::tensor({{2, 2}, {4, 0}});
  EXPECT_THROW(pool(hidden, batch, Pooling::kMean), Error);
}

}  // namespace
}  // namespace tempera::nn
