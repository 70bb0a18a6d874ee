#include "tempera/nn/context.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/nn/testing_model.h"
#include "tempera/nn/testing_ranks.h"

// Ranks that share sequences compute what one rank does.
namespace tempera::nn {
namespace {

constexpr int64_t kLength = 16;

using Change = std::function<void(ModelConfig&, Batch&)>;

std::map<std::string, Change> cases() {
  return {{"plain", [](auto&, auto&) {}},
          {"documents",
           [](auto&, Batch& b) {
             b.documents = torch::tensor({{3, 8, 5}, {15, 1, 0}, {16, 0, 0}});
           }},
          {"padding",
           [](auto&, Batch& b) {
             b.key_start = torch::tensor({0, 3, 9});
             b.key_end = torch::tensor({16, 11, 16});
           }},
          {"padded documents",
           [](auto&, Batch& b) {
             b.documents = torch::tensor({{3, 8, 5}, {15, 1, 0}, {10, 6, 0}});
             b.key_end = torch::tensor({13, 16, 12});
           }},
          {"window",
           [](ModelConfig& c, Batch& b) {
             c.window = 5;
             c.window_layers = "0";
             b.documents = torch::tensor({{3, 8, 5}, {15, 1, 0}, {16, 0, 0}});
           }},
          {"heads of groups, capped",
           [](ModelConfig& c, Batch&) {
             c.heads = 4;
             c.kv_heads = 2;
             c.attention_cap = 2;
             c.qk_norm = QkNorm::kWide;
           }},
          {"shifted, with learned positions",
           [](ModelConfig& c, Batch& b) {
             c.token_shift = true;
             c.position = PositionKind::kLearned;
             b.documents = torch::tensor({{3, 8, 5}, {15, 1, 0}, {16, 0, 0}});
           }},
          {"spread, with learned frequencies",
           [](ModelConfig& c, Batch& b) {
             c.rope.scaling = RopeScaling::kFactors;
             c.rope.factors.assign(static_cast<size_t>(c.rotary_size() / 2), 1.5);
             c.rope.original_context = 64;
             c.rope.learned = true;
             b.positions = (torch::arange(kLength) * 3).expand({3, kLength}).contiguous();
             b.position_end = 3 * kLength;
             b.attention_scale = torch::linspace(0.5, 1.5, kLength).expand({3, kLength});
           }},
          {"no target in most rows", [](auto&, Batch& b) {
             b.targets = torch::full_like(b.targets, -100);
             b.targets[1][7] = 4;
           }}};
}

struct Outcome {
  torch::Tensor hidden;
  double loss = 0;
  std::map<std::string, torch::Tensor> gradients;
};

Outcome outcome(const ModelConfig& config, const Batch& whole, torch::ScalarType type,
                const ContextShare* share, bool recompute) {
  const auto model = moved_model(config);
  model->to(type);
  model->set_compute_type(type);
  model->set_recompute(recompute);
  model->set_context_share(share);
  model->train();
  const Batch batch = share ? with_own_targets(whole, *share) : whole;
  Outcome found;
  const auto hidden = model->hidden(batch);
  found.hidden = hidden.detach();
  // As a trainer does: its part of the mean over all targets.
  const auto count = [](const Batch& some) {
    return static_cast<double>(some.targets.ge(0).sum().item<int64_t>());
  };
  const auto loss = model->loss(batch) * (count(batch) / count(whole));
  found.loss = loss.item<double>();
  // Where few rows have a target, the others have gradients, too.
  auto all = torch::linspace(-1, 1, hidden.size(2), hidden.options());
  (loss + (hidden * all).square().sum() / static_cast<double>(whole.tokens.numel())).backward();
  for (const auto& parameter : model->parameter_list())
    if (parameter.tensor.grad().defined())
      found.gradients[parameter.name] = parameter.tensor.grad();
  return found;
}

double largest(const torch::Tensor& numbers) { return numbers.abs().max().item<double>(); }

double relative(const torch::Tensor& given, const torch::Tensor& expected) {
  return largest_difference(given, expected) / std::max(largest(expected), 1e-3);
}

void expect_equal(int64_t ranks, const ModelConfig& config, const Batch& batch,
                  torch::ScalarType type, bool recompute, const std::string& name) {
  SCOPED_TRACE(concat(ranks, " ranks, ", config.temperature.method, ", ", name));
  const double bound = type == torch::kFloat64 ? 1e-11 : 2e-6;
  const Outcome one = outcome(config, batch, type, nullptr, recompute);
  std::vector<Outcome> found(static_cast<size_t>(ranks));
  run_context_ranks(ranks, [&](const ContextShare& share, const ThreadExchange& exchange) {
    Outcome& mine = found[static_cast<size_t>(exchange.rank())];
    mine = outcome(config, batch, type, &share, recompute);
    EXPECT_LT(relative(mine.hidden, share.own(one.hidden)), bound);
  });
  double loss = 0;
  for (const Outcome& mine : found) loss += mine.loss;
  EXPECT_NEAR(loss / one.loss, 1, 1e-6);
  // Sums that nearly cancel have few digits of float32: there they count against the largest.
  double size = 0;
  for (const auto& [parameter, expected] : one.gradients) size = std::max(size, largest(expected));
  for (const auto& [parameter, expected] : one.gradients) {
    auto sum = torch::zeros_like(expected);
    for (const Outcome& mine : found)
      if (const auto own = mine.gradients.find(parameter); own != mine.gradients.end())
        sum += own->second;
    if (type == torch::kFloat64)
      EXPECT_LT(relative(sum, expected), 1e-9) << parameter;
    else
      EXPECT_LT(largest_difference(sum, expected) / size, 1e-5) << parameter;
  }
}

Batch some_batch() { return tiny_batch(3, kLength); }

class Ranks : public testing::TestWithParam<int64_t> {};

TEST_P(Ranks, EveryMethodComputesWhatOneDoes) {
  for (const auto& [method, options] : causal_method_cases())
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      Batch batch = some_batch();
      batch.documents = torch::tensor({{3, 8, 5}, {15, 1, 0}, {16, 0, 0}});
      batch.key_end = torch::tensor({16, 16, 13});
      ModelConfig config = with_method(tiny_config(), method, options);
      config.kv_heads = 1;
      config.window = 6;
      config.window_layers = "1";
      expect_equal(GetParam(), config, batch, type, false, "documents");
    }
}

TEST_P(Ranks, EveryBatchGivesWhatItGivesOne) {
  for (const auto& [name, change] : cases())
    for (const std::string method : {"ssa", "ssa+focal-learned"})
      for (const bool recompute : {false, true}) {
        ModelConfig config = with_method(tiny_config(), method, {});
        Batch batch = some_batch();
        change(config, batch);
        // Of rows that stand apart no prefix is there.
        if (batch.positions.defined() && method != "ssa") continue;
        const auto type = recompute ? torch::kFloat64 : torch::kFloat32;
        expect_equal(GetParam(), config, batch, type, recompute, name);
      }
}

INSTANTIATE_TEST_SUITE_P(Context, Ranks, testing::Values(2, 4));

TEST(Context, RanksHaveEqualWork) {
  constexpr int64_t kRanks = 4;
  const auto position = torch::arange(64).view({1, 64});
  std::vector<torch::Tensor> rows(kRanks);
  run_context_ranks(kRanks, [&](const ContextShare& share, const ThreadExchange& exchange) {
    rows[static_cast<size_t>(exchange.rank())] = share.own(position);
    EXPECT_TRUE(torch::equal(share.whole(share.own(position)), position));
  });
  for (const auto& own : rows) {
    EXPECT_EQ(own.numel(), 64 / kRanks);
    EXPECT_EQ(own.sum().item<int64_t>(), 63 * 64 / 2 / kRanks);
  }
}

TEST(Context, KeysOfOthersAreThereWhileALayerNeedsThem) {
  run_context_ranks(2, [&](const ContextShare& share, const ThreadExchange& exchange) {
    const auto rows = torch::ones({1, 2, 4, 8}).requires_grad_();
    const auto lent = share.lend({rows * 2});
    EXPECT_EQ(lent.whole[0].sizes(), torch::IntArrayRef({1, 2, 8, 8}));
    const auto out = lent.whole[0].square().sum();
    share.take_back(lent, out);
    EXPECT_EQ(lent.whole[0].storage().nbytes(), 0U);
    EXPECT_EQ(exchange.gathers(), 1);
    out.backward();
    EXPECT_EQ(exchange.gathers(), 2);
    // Of both ranks: d/dx (2x)^2 = 8 each.
    EXPECT_TRUE(torch::equal(rows.grad(), torch::full_like(rows, 16)));
  });
}

TEST(Context, SequencesThatCannotBeCutArePadded) {
  for (const std::string method : {"ssa", "focal-learned"}) {
    ModelConfig config = with_method(tiny_config(), method, {});
    if (method == "ssa") {
      // With a position for each token, and none for what is padded.
      config.position = PositionKind::kLearned;
      config.context = 11;
    }
    Batch batch = tiny_batch(2, 11);
    Batch packed = batch;
    packed.documents = torch::tensor({{4, 7}, {11, 0}});
    for (const Batch& whole : {batch, packed}) {
      const Outcome one = outcome(config, whole, torch::kFloat32, nullptr, false);
      std::vector<double> losses(2);
      run_context_ranks(2, [&](const ContextShare& share, const ThreadExchange& exchange) {
        const auto model = moved_model(config);
        model->set_context_share(&share);
        const Batch own = with_own_targets(whole, share);
        EXPECT_EQ(own.tokens.size(1), 12);
        const double part = static_cast<double>(own.targets.ge(0).sum().item<int64_t>()) / 22;
        losses[static_cast<size_t>(exchange.rank())] = model->loss(own).item<double>() * part;
        Batch unasked = whole;
        unasked.targets = torch::Tensor();
        const auto rows = model->whole_hidden(unasked);
        EXPECT_EQ(rows.sizes(), one.hidden.sizes());
        EXPECT_LT(relative(rows, one.hidden), 2e-6);
      });
      EXPECT_NEAR((losses[0] + losses[1]) / one.loss, 1, 1e-6);
    }
  }
}

TEST(Context, WhatCannotBeSharedIsNamed) {
  const auto refusal = [](const std::function<void(ModelConfig&)>& change, int64_t length = 16) {
    ModelConfig config = tiny_config();
    change(config);
    return message_of([&] { check_context_ranks(config, length, 4); });
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_TRUE(says(refusal([](auto& c) { c.kind = ModelKind::kEncoder; }), "no decoder"));
  EXPECT_TRUE(says(refusal([](auto& c) { c.kind = ModelKind::kEncoderDecoder; }), "no decoder"));
  EXPECT_TRUE(says(refusal([](auto& c) { c.position = PositionKind::kT5; }), "T5's positions"));
  EXPECT_TRUE(says(refusal([](auto& c) { c.dropout_attention = 0.1; }), "dropout"));
  EXPECT_TRUE(says(refusal([](auto&) {}, 20), "sequences of 20 tokens; expected a multiple of 8"));
}

}  // namespace
}  // namespace tempera::nn
