#include "tempera/nn/encoder_decoder.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

ModelConfig pair_config() {
  auto config = tiny_config();
  config.kind = ModelKind::kEncoderDecoder;
  config.layers = 1;
  config.decoder_layers = 2;
  return config;
}

Batch pair_batch() {
  auto batch = tiny_batch(3, 9);
  batch.source = token_pattern(3, 7, 11, 2.0);
  return batch;
}

TEST(EncoderDecoder, ReadsAllOfTheSourceAndTheTargetSoFar) {
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = moved_model(with_method(pair_config(), method, options));
    auto batch = pair_batch();
    const auto plain = eval_logits(*model, batch);
    EXPECT_EQ(plain.sizes(), (torch::IntArrayRef{3, 9, 11}));
    batch.source = batch.source.clone();
    batch.source.select(1, 6).add_(1).remainder_(11);
    const auto other_source = eval_logits(*model, batch);
    for (int64_t row = 0; row < 9; ++row)
      EXPECT_GT(largest_difference(plain.select(1, row), other_source.select(1, row)), 1e-7)
          << method << " row " << row;
    batch = pair_batch();
    batch.tokens = batch.tokens.clone();
    batch.tokens.select(1, 5).add_(1).remainder_(11);
    const auto other_target = eval_logits(*model, batch);
    EXPECT_TRUE(torch::equal(plain.narrow(1, 0, 5), other_target.narrow(1, 0, 5))) << method;
    EXPECT_GT(largest_difference(plain.select(1, 5), other_target.select(1, 5)), 1e-6) << method;
  }
}

// Some rows at once, others one by one; with a padded source, after a selection and a truncation.
TEST(EncoderDecoder, CachedDecodingEqualsTheFullPass) {
  for (const auto position : {PositionKind::kRope, PositionKind::kT5}) {
    for (const auto& [method, options] : causal_method_cases()) {
      auto config = with_method(pair_config(), method, options);
      config.position = position;
      config.qk_norm = QkNorm::kGain;
      const auto model = moved_model(config);
      auto batch = pair_batch();
      batch.source_end = torch::tensor({7, 4, 5});
      const auto full = eval_logits(*model, batch);
      auto first = model->read_source(batch, 12);
      model->extend(batch.tokens.narrow(1, 0, 5), first);
      auto cache = first.select({2, 0, 1});
      cache.truncate(3);
      const auto order = torch::tensor({2, 0, 1});
      const auto tokens = batch.tokens.index_select(0, order);
      std::vector<torch::Tensor> rows;
      for (int64_t row = 3; row < 9; ++row)
        rows.push_back(model->project(model->extend(tokens.narrow(1, row, 1), cache)));
      EXPECT_LT(
          largest_difference(torch::cat(rows, 1), full.index_select(0, order).narrow(1, 3, 6)),
          1e-4)
          << method;
    }
  }
}

TEST(EncoderDecoder, PaddingOfTheSourceChangesNothing) {
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = moved_model(with_method(pair_config(), method, options));
    Batch plain;
    plain.tokens = token_pattern(1, 5, 11);
    plain.source = token_pattern(1, 6, 11, 1.0);
    Batch padded = plain;
    padded.source = torch::constant_pad_nd(plain.source, {2, 3}, 1);
    padded.source_start = torch::tensor({2});
    padded.source_end = torch::tensor({8});
    EXPECT_LT(largest_difference(eval_logits(*model, padded), eval_logits(*model, plain)), 1e-4)
        << method;
  }
}

TEST(EncoderDecoder, PackedPairsEqualSeparateOnes) {
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = moved_model(with_method(pair_config(), method, options));
    Batch packed;
    packed.tokens = token_pattern(1, 9, 11);
    packed.documents = torch::tensor({{4, 5}});
    packed.source = token_pattern(1, 8, 11, 1.0);
    packed.source_documents = torch::tensor({{5, 3}});
    Batch second;
    second.tokens = packed.tokens.narrow(1, 4, 5);
    second.source = packed.source.narrow(1, 5, 3);
    EXPECT_LT(largest_difference(eval_logits(*model, packed).narrow(1, 4, 5),
                                 eval_logits(*model, second)),
              1e-4)
        << method;
  }
}

TEST(EncoderDecoder, CrossAttentionHasAMethodOfItsOwn) {
  auto config = with_method(pair_config(), "ssa");
  config.cross_temperature = {.method = "focal", .layers = "1-", .options = {{"t", 0.5}}};
  const auto model = make_model(config, 1);
  std::vector<std::string> names;
  for (const auto* method : model->methods()) names.push_back(method->specs().front().name);
  EXPECT_EQ(names, (std::vector<std::string>{"ssa", "ssa", "softmax", "ssa", "focal"}));
  config.cross_temperature = ModelConfig().cross_temperature;
  const auto same = make_model(config, 1);
  for (const auto* method : same->methods()) EXPECT_EQ(method->specs().front().name, "ssa");
  // Only the cross-attention differs, and it shows.
  auto plain = pair_config();
  const auto batch = pair_batch();
  const auto logits = eval_logits(*make_model(plain, 1), batch);
  plain.cross_temperature = {.method = "focal", .options = {{"t", 1.0}}};
  EXPECT_TRUE(torch::equal(eval_logits(*make_model(plain, 1), batch), logits));
  plain.cross_temperature.options["t"] = 0.25;
  EXPECT_GT(largest_difference(eval_logits(*make_model(plain, 1), batch), logits), 1e-4);
}

TEST(EncoderDecoder, AllMethodsStartFromTheSameWeights) {
  const auto plain = make_model(pair_config(), 5);
  const auto state = plain->state();
  EXPECT_TRUE(state.contains("encoder.layers.0.attention.qkv.weight"));
  EXPECT_TRUE(state.contains("decoder.layers.1.cross_attention.kv.weight"));
  for (const auto& [method, options] : causal_method_cases()) {
    const auto model = make_model(with_method(pair_config(), method, options), 5);
    for (const auto& parameter : model->parameter_list()) {
      if (parameter.kind == ParameterKind::kTemperature) continue;
      EXPECT_TRUE(torch::equal(parameter.tensor, state.at(parameter.name)))
          << method << " " << parameter.name;
    }
  }
}

TEST(EncoderDecoder, GradientsReachEveryPartAndRecomputingGivesTheSame) {
  for (const auto position : {PositionKind::kRope, PositionKind::kT5, PositionKind::kLearned}) {
    auto config = with_method(pair_config(), "ssa+focal-learned");
    config.position = position;
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0.1;
    config.tied_embeddings = false;
    const auto model = moved_model(config);
    auto batch = pair_batch();
    batch.dropout_seed = 7;
    const auto gradients = [&] {
      model->zero_grad();
      model->train();
      model->loss(batch, 0.1).backward();
      std::map<std::string, torch::Tensor> found;
      for (const auto& parameter : model->parameter_list())
        found[parameter.name] = parameter.tensor.grad().clone();
      return found;
    };
    const auto plain = gradients();
    model->set_recompute(true);
    const auto again = gradients();
    for (const auto& [name, gradient] : plain) {
      EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
      EXPECT_TRUE(torch::equal(gradient, again.at(name))) << name;
    }
  }
}

TEST(EncoderDecoder, InspectionIsOfTheCrossAttention) {
  auto config = with_method(pair_config(), "ssa", {{"k", true}});
  const auto model = moved_model(config);
  model->eval();
  const auto batch = pair_batch();
  const auto rows = torch::full({3, 7}, 8, torch::kInt64);
  const auto keys = torch::arange(7).expand({3, 7});
  const auto found = model->inspect(batch, rows, keys);
  ASSERT_EQ(found.size(), model->methods().size());
  for (const size_t cross : {2U, 4U})
    EXPECT_TRUE(torch::allclose(found[cross].weight.sum(-1), torch::ones({3, 2}), 1e-4, 1e-5));
  for (const size_t self : {0U, 1U, 3U}) {
    EXPECT_FALSE(found[self].weight.defined());
    EXPECT_TRUE(found[self].a_q.defined());
  }
}

TEST(EncoderDecoder, RefusesABatchWithoutASource) {
  const auto model = make_model(pair_config(), 1);
  EXPECT_THROW(model->loss(tiny_batch()), Error);
  EXPECT_THROW(model->make_cache(1, 8), Error);
  EXPECT_THROW(make_model(tiny_config(), 1)->read_source(pair_batch(), 8), Error);
}

}  // namespace
}  // namespace tempera::nn
