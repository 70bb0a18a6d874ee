#include "tempera/nn/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/observe.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

constexpr int64_t kWidth = 32;

LayerShape shape_of(AttentionKind kind) {
  return {.d_model = kWidth,
          .q_heads = 4,
          .kv_heads = 2,
          .qk_size = 16,
          .v_size = 16,
          .vocabulary = 11,
          .trained_length = 8,
          .kind = kind};
}

std::shared_ptr<Attention> make_attention(AttentionKind kind, const std::string& method,
                                          QkNorm qk_norm = QkNorm::kNone) {
  auto made = std::make_shared<Attention>(
      AttentionOptions{.width = kWidth, .bias = AttentionBias::kAll, .qk_norm = qk_norm},
      make_method(method_specs(method, {}, Origin::kScratch), shape_of(kind)));
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (auto& parameter : made->parameters()) {
    const auto index = torch::arange(parameter.numel(), torch::kFloat64);
    parameter.copy_(((index * 12.9898 + ++phase).sin() * 0.3).view_as(parameter));
  }
  return made;
}

torch::Tensor rows_pattern(int64_t batch, int64_t rows, double phase) {
  const auto index = torch::arange(batch * rows * kWidth, torch::kFloat64);
  return (index * 0.7391 + phase).sin().view({batch, rows, kWidth}).to(torch::kFloat32);
}

SequenceRows make_rows(const SequenceMask& mask, int64_t batch, int64_t rows) {
  return {mask, sequence_rows(mask, batch, rows, torch::kCPU), {}, token_pattern(batch, rows, 11)};
}

// Plain attention written out, without a temperature: weights (B, H, Tq, Tk).
torch::Tensor naive_weights(const torch::Tensor& q, const torch::Tensor& k,
                            const torch::Tensor& allowed) {
  const auto repeated = k.repeat_interleave(q.size(1) / k.size(1), 1);
  const auto logits = torch::matmul(q, repeated.transpose(2, 3)) / std::sqrt(16.0);
  return logits.masked_fill(allowed.logical_not(), -INFINITY).softmax(-1);
}

torch::Tensor heads(const torch::Tensor& x, int64_t count) {
  return x.view({x.size(0), x.size(1), count, 16}).transpose(1, 2);
}

torch::Tensor linear(Attention& layer, const std::string& name, const torch::Tensor& x) {
  const auto parameters = layer.named_parameters();
  return torch::linear(x, parameters[name + ".weight"], parameters[name + ".bias"]);
}

torch::Tensor merge(Attention& layer, const torch::Tensor& weights, const torch::Tensor& v) {
  const auto out = torch::matmul(weights, v.repeat_interleave(2, 1));
  return linear(layer, "out", out.transpose(1, 2).flatten(2));
}

TEST(Attention, SelfAttentionIsWhatTheFormulaSays) {
  const torch::NoGradGuard no_grad;
  for (const auto kind : {AttentionKind::kCausal, AttentionKind::kEncoder}) {
    const bool causal = kind == AttentionKind::kCausal;
    const auto layer = make_attention(kind, "softmax");
    const auto x = rows_pattern(2, 7, 0);
    const Pass pass{.rows = make_rows({.causal = causal}, 2, 7), .angles = {}, .bias = {}};
    const auto projected = linear(*layer, "qkv", x).split_with_sizes({64, 32, 32}, -1);
    auto allowed = torch::ones({7, 7}, torch::kBool);
    if (causal) allowed = allowed.tril();
    const auto weights = naive_weights(heads(projected[0], 4), heads(projected[1], 2), allowed);
    EXPECT_TRUE(torch::allclose(layer->forward(x, pass),
                                merge(*layer, weights, heads(projected[2], 2)), 1e-4, 1e-5));
  }
}

TEST(Attention, CrossAttentionReadsTheSource) {
  const torch::NoGradGuard no_grad;
  const auto layer = make_attention(AttentionKind::kCross, "softmax");
  const auto x = rows_pattern(2, 3, 0);
  const Pass pass{.rows = make_rows({.causal = true}, 2, 3), .angles = {}, .bias = {}};
  const auto end = torch::tensor({5, 4});
  const Source source{rows_pattern(2, 5, 1),
                      make_rows({.documents = {}, .start = {}, .end = end}, 2, 5)};
  const auto kv = linear(*layer, "kv", source.x).split_with_sizes({32, 32}, -1);
  const auto allowed = (torch::arange(5) < end.view({2, 1})).view({2, 1, 1, 5});
  const auto weights = naive_weights(heads(linear(*layer, "q", x), 4), heads(kv[0], 2), allowed);
  EXPECT_TRUE(torch::allclose(layer->forward(x, pass, source),
                              merge(*layer, weights, heads(kv[1], 2)), 1e-4, 1e-5));
  EXPECT_THROW(layer->forward(x, pass), Error);
}

// A temperature per row from the number of source tokens that the row sees: log n.
TEST(Attention, CrossAttentionCountsUnmaskedSourceTokens) {
  const torch::NoGradGuard no_grad;
  const auto layer = make_attention(AttentionKind::kCross, "ssa", QkNorm::kGain);
  const auto x = rows_pattern(1, 3, 0);
  const Pass pass{.rows = make_rows({.causal = true}, 1, 3), .angles = {}, .bias = {}};
  const auto source_x = rows_pattern(1, 6, 1);
  const Source padded{source_x,
                      make_rows({.documents = {}, .start = {}, .end = torch::tensor({4})}, 1, 6)};
  const Source cut{source_x.narrow(1, 0, 4), make_rows({}, 1, 4)};
  const Source longer{source_x, make_rows({}, 1, 6)};
  const auto out = layer->forward(x, pass, padded);
  EXPECT_TRUE(torch::allclose(out, layer->forward(x, pass, cut), 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(out, layer->forward(x, pass, longer), 1e-3, 1e-4));
}

TEST(Attention, CrossAttentionKeepsDocumentsApart) {
  const torch::NoGradGuard no_grad;
  const auto layer = make_attention(AttentionKind::kCross, "ssa");
  const auto x = rows_pattern(1, 5, 0);
  const auto source_x = rows_pattern(1, 7, 1);
  const Pass packed{.rows = make_rows({.documents = torch::tensor({{2, 3}}), .causal = true}, 1, 5),
                    .angles = {},
                    .bias = {}};
  const Source both{source_x, make_rows({.documents = torch::tensor({{4, 3}})}, 1, 7)};
  const auto together = layer->forward(x, packed, both);
  const Pass second{.rows = make_rows({.causal = true}, 1, 3), .angles = {}, .bias = {}};
  const Source alone{source_x.narrow(1, 4, 3), make_rows({}, 1, 3)};
  EXPECT_TRUE(torch::allclose(together.narrow(1, 2, 3),
                              layer->forward(x.narrow(1, 2, 3), second, alone), 1e-4, 1e-5));
}

TEST(Attention, GradientsReachBothSequences) {
  const auto layer = make_attention(AttentionKind::kCross, "ssa", QkNorm::kGain);
  const auto x = rows_pattern(2, 3, 0).requires_grad_();
  const Pass pass{.rows = make_rows({.causal = true}, 2, 3), .angles = {}, .bias = {}};
  const Source source{rows_pattern(2, 5, 1).requires_grad_(), make_rows({}, 2, 5)};
  layer->forward(x, pass, source).square().sum().backward();
  EXPECT_GT(x.grad().abs().min().item<double>(), 0);
  EXPECT_GT(source.x.grad().abs().max().item<double>(), 0);
  for (const auto& item : layer->named_parameters())
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(Rotary, TurnsPairsAndDependsOnDistanceAlone) {
  RotaryTable table({.base = 100}, 8, 64);
  const auto angles = table.range(0, 20, 20, torch::kCPU);
  const auto x = rows_pattern(1, 20, 0).narrow(2, 0, 16).unsqueeze(1);
  const auto turned = ops::rotary(x, angles.cos, angles.sin);
  EXPECT_TRUE(torch::equal(turned.narrow(3, 8, 8), x.narrow(3, 8, 8)));
  EXPECT_TRUE(torch::equal(turned.select(2, 0), x.select(2, 0)));
  // Column 1 with column 5, by position * 100^(-2/8).
  const double angle = 3 * std::pow(100.0, -0.25);
  const double a = x[0][0][3][1].item<double>(), b = x[0][0][3][5].item<double>();
  EXPECT_NEAR(turned[0][0][3][1].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-5);
  EXPECT_NEAR(turned[0][0][3][5].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-5);
  const auto q = x.select(2, 4).unsqueeze(2), k = x.select(2, 9).unsqueeze(2);
  const auto product = [&](int64_t i, int64_t j) {
    const auto at = [&](int64_t p) { return table.range(p, 1, 20, torch::kCPU); };
    return (ops::rotary(q, at(i).cos, at(i).sin) * ops::rotary(k, at(j).cos, at(j).sin))
        .sum()
        .item<double>();
  };
  EXPECT_NEAR(product(5, 2), product(15, 12), 1e-4);
  EXPECT_GT(std::abs(product(5, 2) - product(5, 3)), 1e-3);
}

TEST(RelativeBias, BucketsGrowWithDistance) {
  const torch::NoGradGuard no_grad;
  RelativeBias causal(1, /*bidirectional=*/false), both(1, /*bidirectional=*/true);
  for (auto* bias : {&causal, &both}) bias->parameters()[0].copy_(torch::arange(32).view({32, 1}));
  const auto row = causal.forward(200, 1, 201)[0][0][0].flip(0);  // by distance
  EXPECT_EQ(row[0].item<double>(), 0);
  EXPECT_EQ(row[15].item<double>(), 15);
  EXPECT_EQ(row[16].item<double>(), 16);
  EXPECT_EQ(row[127].item<double>(), 31);
  EXPECT_EQ(row[200].item<double>(), 31);
  EXPECT_TRUE((row.diff() >= 0).all().item<bool>());
  const auto around = both.forward(5, 1, 11)[0][0][0];
  EXPECT_EQ(around[5].item<double>(), 0);
  EXPECT_EQ(around[3].item<double>(), 2);
  EXPECT_EQ(around[7].item<double>(), 16 + 2);
}

// They sum to 1 only where every logit has the scales and the bias that the operator used.
TEST(Inspect, GivesTheAttentionWeights) {
  for (const auto position : {PositionKind::kRope, PositionKind::kT5}) {
    auto config = with_method(tiny_config(), "ssa", {{"k", true}});
    config.layers = 1;
    config.kv_heads = 1;
    config.position = position;
    config.qk_norm = QkNorm::kPlain;
    const auto model = moved_model(config);
    model->eval();
    const auto batch = tiny_batch(2, 6);
    // All pairs of the last row with every key: the weights must sum to 1.
    const auto rows = torch::full({2, 6}, 5, torch::kInt64);
    const auto keys = torch::arange(6).expand({2, 6});
    const auto found = model->inspect(batch, rows, keys);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].weight.sizes(), (torch::IntArrayRef{2, 2, 6}));
    EXPECT_TRUE(torch::allclose(found[0].weight.sum(-1), torch::ones({2, 2}), 1e-4, 1e-5));
    EXPECT_GT(found[0].weight.std().item<double>(), 1e-3);
    const auto entropy = -(found[0].weight * found[0].weight.log()).sum(-1, /*keepdim=*/true);
    EXPECT_TRUE(torch::allclose(found[0].entropy, entropy.expand({2, 2, 6}), 1e-4, 1e-5));
    EXPECT_EQ(found[0].a_q.sizes(), (torch::IntArrayRef{2}));
    EXPECT_EQ(found[0].a_k.sizes(), (torch::IntArrayRef{1}));
    EXPECT_EQ(found[0].a_v.sizes(), (torch::IntArrayRef{1}));
  }
}

// Over the rows that are no padding, against the entropies of all rows one by one.
TEST(Inspect, WithoutPairsTellsOfAllRowsTogether) {
  auto config = with_method(tiny_config(), "ssa", {{"k", true}});
  config.kind = ModelKind::kEncoder;
  const auto model = moved_model(config);
  model->eval();
  auto batch = tiny_batch(2, 6);
  batch.key_start = torch::tensor({0, 1});
  batch.key_end = torch::tensor({6, 4});
  const auto rows = torch::arange(6).expand({2, 6}).contiguous();
  class Largest final : public ops::AttentionObserver {
   public:
    void before(ops::AttentionArgs& args) override { args.want_max = true; }
    void after(const ops::AttentionArgs&, const ops::AttentionResult& result) override {
      found.push_back(result.max);
    }
    std::vector<torch::Tensor> found;
  } largest;
  const auto pairs = model->inspect(batch, rows, torch::ones_like(rows));
  const auto together = model->inspect(batch, {}, {});
  ASSERT_EQ(together.size(), 2U);
  for (size_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      double sum = 0, most = -1e30;
      for (int64_t row = 0; row < 6; ++row)
        for (int64_t sequence = 0; sequence < 2; ++sequence) {
          if (sequence == 1 && (row < 1 || row >= 4)) continue;
          sum += pairs[layer].entropy[sequence][head][row].item<double>();
          most = std::max(most, largest.found[layer][sequence][head][row].item<double>());
        }
      EXPECT_NEAR(together[layer].mean_entropy[head].item<double>(), sum / 9, 1e-5);
      EXPECT_NEAR(together[layer].largest[head].item<double>(), most, 1e-5);
    }
    EXPECT_FALSE(together[layer].weight.defined());
    EXPECT_TRUE(torch::equal(together[layer].a_q, pairs[layer].a_q));
  }
}

TEST(Inspect, GivesTheTemperature) {
  auto config = with_method(tiny_config(), "focal", {{"t", 0.5}});
  const auto model = make_model(config, 1);
  model->eval();
  const auto first = torch::zeros({3, 1}, torch::kInt64);
  const auto found = model->inspect(tiny_batch(), first, first);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(torch::allclose(found[1].a_q, torch::full({2}, 2.0)));
  EXPECT_FALSE(found[1].a_v.defined());
  EXPECT_TRUE(torch::allclose(found[1].weight, torch::ones({3, 2, 1})));
}

}  // namespace
}  // namespace tempera::nn
