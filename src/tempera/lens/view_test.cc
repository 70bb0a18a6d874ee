#include "tempera/lens/view.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/lens/weights.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/observe.h"

namespace tempera::lens {
namespace {

constexpr int64_t kRows = 40;

// Attention over the identity in double precision: what comes out are the weights, by the naive
// reference.
class Reference final : public ops::AttentionObserver {
 public:
  void before(ops::AttentionArgs& /*args*/) override {}
  void after(const ops::AttentionArgs& args, const ops::AttentionResult& /*result*/) override {
    ops::AttentionArgs exact = args;
    exact.q = args.q.to(torch::kFloat64);
    exact.k = args.k.to(torch::kFloat64);
    for (auto* recipe : {&exact.q_recipe, &exact.k_recipe})
      if (recipe->source.defined()) recipe->source = recipe->source.to(torch::kFloat64);
    const int64_t keys = args.k.size(2);
    exact.v = torch::eye(keys, torch::kFloat64).expand({1, args.k.size(1), keys, keys});
    exact.a_v.reset();
    exact.v_recipe = {};
    exact.want_entropy = exact.want_max = true;
    Quiet quiet;
    results.push_back(ops::attention(exact));
  }
  std::vector<ops::AttentionResult> results;

 private:
  class Quiet final : public ops::AttentionObserver {
    void before(ops::AttentionArgs& /*args*/) override {}
    void after(const ops::AttentionArgs& /*args*/,
               const ops::AttentionResult& /*result*/) override {}
  };
};

nn::Batch one_text(int64_t rows = kRows) {
  nn::Batch batch;
  batch.tokens = nn::token_pattern(1, rows, 11);
  return batch;
}

std::vector<ops::AttentionResult> reference(nn::Model& model, const nn::Batch& batch) {
  const torch::NoGradGuard no_grad;
  Reference seen;
  model.hidden(batch);
  return seen.results;
}

void expect_same(const nn::ModelConfig& config, const nn::Batch& batch) {
  const auto model = nn::moved_model(config);
  model->eval();
  const View view = look(*model, batch);
  const auto exact = reference(*model, batch);
  ASSERT_EQ(std::ssize(view.attentions), attention_count(config));
  ASSERT_EQ(view.attentions.size(), exact.size());
  for (size_t layer = 0; layer < exact.size(); ++layer) {
    const Attention& attention = view.attentions[layer];
    const auto expected = exact[layer].out[0];
    ASSERT_EQ(attention.heads(), expected.size(0));
    for (int64_t head = 0; head < attention.heads(); ++head) {
      const auto found = weights(attention, head, {0, attention.rows()}, {0, attention.keys()});
      EXPECT_LT(nn::largest_difference(found, expected[head]), 1e-5)
          << config.temperature.method << " layer " << layer << " head " << head;
      EXPECT_LT(nn::largest_difference(attention.first[head], expected[head].select(1, 0)), 1e-5);
    }
    EXPECT_LT(nn::largest_difference(attention.entropy, exact[layer].entropy[0]), 1e-4);
    EXPECT_LT(nn::largest_difference(attention.largest, exact[layer].max[0]), 1e-4);
  }
}

TEST(Lens, WeightsAreThoseOfTheReference) {
  for (const auto* method : {"softmax", "focal", "ssa", "ssmax", "head,value"})
    expect_same(nn::with_method(nn::tiny_config(), method), one_text());
}

TEST(Lens, WeightsWithWindowBiasNormAndGroups) {
  auto config = nn::with_method(nn::tiny_config(), "ssa", {{"k", true}});
  config.kv_heads = 1;
  config.qk_norm = nn::QkNorm::kPlain;
  config.window = 7;
  expect_same(config, one_text());
  config.window = 0;
  config.position = nn::PositionKind::kT5;
  expect_same(config, one_text());
  config.kind = nn::ModelKind::kEncoder;
  expect_same(config, one_text());
  // Its rows see what a loss would ask for.
  const auto model = nn::moved_model(config);
  model->eval();
  const View view = look(*model, one_text(), {.losses = false});
  EXPECT_TRUE(view.losses.isnan().all().item<bool>());
  EXPECT_FALSE(view.output.defined());
}

TEST(Lens, EncoderDecodersShowBothSelvesAndTheCross) {
  auto config = nn::tiny_config();
  config.kind = nn::ModelKind::kEncoderDecoder;
  auto batch = one_text(9);
  batch.source = nn::token_pattern(1, 13, 11, 2.0);
  expect_same(config, batch);
  const auto model = nn::moved_model(config);
  model->eval();
  const View view = look(*model, batch);
  ASSERT_EQ(view.attentions.size(), 6U);
  EXPECT_EQ(view.attentions[1].role, AttentionRole::kEncoder);
  EXPECT_EQ(view.attentions[4].role, AttentionRole::kDecoder);
  EXPECT_EQ(view.attentions[5].role, AttentionRole::kCross);
  EXPECT_EQ(view.attentions[5].layer, 1);
  EXPECT_EQ(view.attentions[5].keys(), 13);
}

TEST(Lens, LossesAndNextTokensAreTheModels) {
  const auto model = nn::moved_model(nn::tiny_config());
  model->eval();
  auto batch = one_text(60);
  const View view = look(*model, batch, {.next_tokens = 3});
  batch.targets = torch::full_like(batch.tokens, -100);
  batch.targets.narrow(1, 0, 59).copy_(batch.tokens.narrow(1, 1, 59));
  const auto expected = model->token_losses(batch)[0];
  EXPECT_TRUE(std::isnan(view.losses[0].item<double>()));
  EXPECT_LT(nn::largest_difference(view.losses.narrow(0, 1, 59), expected.narrow(0, 0, 59)), 1e-5);
  const auto chances = nn::eval_logits(*model, batch)[0][59].log_softmax(-1);
  ASSERT_EQ(view.next.size(), 3U);
  EXPECT_EQ(view.next[0].id, chances.argmax().item<int64_t>());
  EXPECT_NEAR(view.next[0].log_probability, chances.max().item<double>(), 1e-5);
}

TEST(Lens, TellsTheTemperatureAndChangesIt) {
  const auto model = nn::make_model(nn::with_method(nn::tiny_config(), "focal", {{"t", 0.5}}), 1);
  const auto plain = nn::make_model(nn::tiny_config(), 1);
  model->eval();
  plain->eval();
  const View focal = look(*model, one_text());
  EXPECT_LT((focal.attentions[1].metric(Metric::kTemperature) - 0.5).abs().max().item<double>(),
            1e-6);
  // Plain attention at half the temperature is the same model.
  const View half = look(*plain, one_text(), {.factors = {{0.5, 0.5}, {0.5, 0.5}}});
  EXPECT_LT(nn::largest_difference(half.attentions[1].entropy, focal.attentions[1].entropy), 1e-5);
  EXPECT_NEAR(half.next[0].log_probability, focal.next[0].log_probability, 1e-5);
  const View one_head = look(*plain, one_text(), {.factors = {{1, 0.5}, {1, 1}}});
  const auto as_is = look(*plain, one_text()).attentions[0].entropy;
  EXPECT_EQ(nn::largest_difference(one_head.attentions[0].entropy[0], as_is[0]), 0);
  EXPECT_GT(nn::largest_difference(one_head.attentions[0].entropy[1], as_is[1]), 0.01);
  EXPECT_THROW(look(*plain, one_text(), {.factors = {{1}, {1}}}), Error);
}

TEST(Lens, LargeTextsAreKeptRounded) {
  const auto model = nn::moved_model(nn::tiny_config());
  model->eval();
  const View exact = look(*model, one_text());
  const View rounded = look(*model, one_text(), {.most_bytes = 1});
  EXPECT_FALSE(exact.rounded);
  EXPECT_TRUE(rounded.rounded);
  EXPECT_EQ(rounded.attentions[0].q.scalar_type(), torch::kShort);
  const Span all{0, kRows};
  const auto difference = nn::largest_difference(weights(exact.attentions[1], 1, all, all),
                                                 weights(rounded.attentions[1], 1, all, all));
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 1e-4);
  EXPECT_EQ(nn::largest_difference(exact.attentions[1].first, rounded.attentions[1].first), 0);
}

// A pass that goes on from kept states is the whole pass.
TEST(Lens, OnlyWhatChangesIsComputedAgain) {
  auto config = nn::with_method(nn::tiny_config(), "ssa");
  config.layers = 5;
  const auto model = nn::moved_model(config);
  model->eval();
  const auto batch = one_text();
  std::vector<std::vector<double>> factors(5, {1, 1});
  factors[3] = {1, 0.5};
  const View whole = look(*model, batch, {.factors = factors});
  const uint64_t each = kRows * 32 * sizeof(float);
  for (const uint64_t room : {each, 2 * each, 5 * each}) {
    const View before = look(*model, batch, {.state_bytes = room});
    EXPECT_EQ(before.states.size(), room / each);
    int64_t first = -1;
    View after = look(
        *model, batch,
        {.factors = factors, .losses = false, .as_it_is = &before, .report = [&](int64_t done) {
           first = first < 0 ? done - 1 : first;
         }});
    EXPECT_EQ(first, 3 / before.state_stride * before.state_stride);
    ASSERT_EQ(after.attentions.size(), 5U);
    for (size_t layer = 0; layer < 5; ++layer)
      EXPECT_LT(
          nn::largest_difference(after.attentions[layer].entropy, whole.attentions[layer].entropy),
          1e-5);
    const bool shared = after.attentions[0].q.data_ptr() == before.attentions[0].q.data_ptr();
    EXPECT_EQ(shared, before.state_stride < 5);
    EXPECT_TRUE(after.losses.isnan().all().item<bool>());
    find_losses(*model, batch.tokens[0], after);
    EXPECT_LT(nn::largest_difference(after.losses.slice(0, 1), whole.losses.slice(0, 1)), 1e-5);
    EXPECT_NEAR(after.next[0].log_probability, whole.next[0].log_probability, 1e-5);
  }
}

// Longer than what is computed at a time.
TEST(Lens, PicturesKeepTheLargestWeights) {
  auto config = nn::tiny_config();
  config.context = 600;
  const auto model = nn::moved_model(config);
  model->eval();
  const View view = look(*model, one_text(555));
  const Attention& attention = view.attentions[1];
  const auto all = weights(attention, 1, {0, 555}, {0, 555});
  EXPECT_EQ(all.triu(1).abs().max().item<double>(), 0);
  const auto picture = maxima(attention, 1, {100, 300}, {50, 333}, 7);
  EXPECT_EQ(picture.sizes(), (torch::IntArrayRef{43, 48}));
  for (int64_t row = 0; row < 43; ++row)
    for (int64_t key = 0; key < 48; ++key) {
      const auto cell = all.slice(0, 100 + 7 * row, std::min<int64_t>(107 + 7 * row, 400))
                            .slice(1, 50 + 7 * key, std::min<int64_t>(57 + 7 * key, 383));
      ASSERT_NEAR(picture[row][key].item<double>(), cell.max().item<double>(), 1e-6);
    }
  const Digest digested = digest(attention, 1, 9, 2);
  EXPECT_LT(nn::largest_difference(digested.maxima, maxima(attention, 1, {0, 555}, {0, 555}, 9)),
            1e-6);
  EXPECT_LT(nn::largest_difference(digested.top_weight.select(1, 0), std::get<0>(all.max(1))),
            1e-6);
  EXPECT_LT(nn::largest_difference(all.gather(1, digested.top_key), digested.top_weight), 1e-6);
}

TEST(Lens, RefusesPartsThatAreNotThere) {
  const auto model = nn::moved_model(nn::tiny_config());
  model->eval();
  const View view = look(*model, one_text());
  const Attention& attention = view.attentions[0];
  EXPECT_THROW(weights(attention, 2, {0, 1}, {0, 1}), Error);
  EXPECT_THROW(weights(attention, -1, {0, 1}, {0, 1}), Error);
  EXPECT_THROW(weights(attention, 0, {39, 2}, {0, 1}), Error);
  EXPECT_THROW(weights(attention, 0, {0, 1}, {-1, 2}), Error);
  EXPECT_THROW(weights(attention, 0, {INT64_MAX, 1}, {0, 1}), Error);
  EXPECT_THROW(weights(attention, 0, {0, INT64_MAX}, {0, 1}), Error);
  EXPECT_THROW(maxima(attention, 0, {0, 1}, {0, 1}, 0), Error);
  auto two = one_text();
  two.tokens = nn::token_pattern(2, 8, 11);
  EXPECT_THROW(look(*model, two), Error);
}

}  // namespace
}  // namespace tempera::lens
