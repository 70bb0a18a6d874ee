#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/testing_layer.h"

// Scales worked out by hand, method by method.
namespace tempera {
namespace {

constexpr auto kDouble = torch::kFloat64;

LayerShape small_shape(AttentionKind kind = AttentionKind::kCausal) {
  return {.d_model = 3,
          .q_heads = 2,
          .kv_heads = 1,
          .qk_size = 4,
          .v_size = 2,
          .vocabulary = 2,
          .trained_length = 8,
          .kind = kind};
}

std::shared_ptr<Method> make(const std::string& text, const MethodOptions& options = {},
                             AttentionKind kind = AttentionKind::kCausal) {
  auto method = make_method(method_specs(text, options, Origin::kScratch), small_shape(kind));
  method->to(kDouble);
  return method;
}

void set(Method& method, const std::string& name, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  auto& parameter = method.named_parameters()[name];
  parameter.copy_(value.to(kDouble).expand_as(parameter));
}

// One sequence whose rows see 1, 2, 3, ... keys.
LayerInputs inputs(int64_t rows) {
  const auto counts = sequence_rows({.causal = true}, 1, rows, torch::kCPU);
  const RowInfo info{torch::zeros({1, rows, 3}, kDouble), torch::zeros({1, rows}, torch::kInt64),
                     counts.n, counts.position};
  return {.queries = info,
          .keys = info,
          .q = torch::zeros({1, 2, rows, 4}, kDouble),
          .k = torch::zeros({1, 1, rows, 4}, kDouble),
          .v = torch::zeros({1, 1, rows, 2}, kDouble),
          .past = {}};
}

void expect_scale(const RowScale& scale, const torch::Tensor& n, int64_t head,
                  const std::vector<double>& expected) {
  ASSERT_TRUE(scale.present());
  const auto values = finish(scale, n, kDouble).expand({1, head < 1 ? -1 : 2, -1})[0][head];
  ASSERT_EQ(values.size(0), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(values[static_cast<int64_t>(i)].item<double>(), expected[i], 1e-7) << "row " << i;
  }
}

TEST(Softmax, ScalesNothing) {
  const auto scales = make("softmax")->forward(inputs(2));
  EXPECT_FALSE(scales.q.present() || scales.k.present() || scales.v.present());
}

TEST(Focal, IsTheInverseOfT) {
  const auto in = inputs(2);
  const auto scales = make("focal")->forward(in);
  expect_scale(scales.q, in.queries.n, 1, {2.5, 2.5});
  EXPECT_FALSE(scales.q.rows.defined()) << "a recipe for the kernel";
  EXPECT_FALSE(scales.k.present() || scales.v.present());
}

TEST(FocalLearned, StartsAtT0) {
  const auto in = inputs(3);
  expect_scale(make("focal-learned")->forward(in).q, in.queries.n, 0, {2.5, 2.5, 2.5});
}

TEST(FocalLearned, AveragesTheRowsUpToHere) {
  auto in = inputs(3);
  in.queries.x.select(2, 0).copy_(torch::tensor({{1.0, 2.0, 0.0}}));
  const auto method = make("focal-learned");
  set(*method, "weight", torch::tensor({1.0, 0.0, 0.0}));
  const auto scales = method->forward(in);  // sqrt(d) = 2, b = 0.8
  expect_scale(scales.q, in.queries.n, 0, {2 / 1.8, 2 / 2.3, 2 / 1.8});
  EXPECT_TRUE(scales.state.squeeze().equal(torch::tensor({1.0, 3.0, 3.0}, kDouble)));
}

TEST(FocalLearned, TokenAxisTakesNoMean) {
  auto in = inputs(3);
  in.queries.x.select(2, 0).copy_(torch::tensor({{1.0, 2.0, 0.0}}));
  const auto method = make("focal-learned", {{"axis", std::string("token")}});
  set(*method, "weight", torch::tensor({1.0, 0.0, 0.0}));
  expect_scale(method->forward(in).q, in.queries.n, 0, {2 / 1.8, 2 / 2.8, 2 / 0.8});
  EXPECT_EQ(method->state_width(), 0);
}

TEST(FocalLearned, SequenceAxisAveragesTheDocumentWithoutPadding) {
  for (const auto& [kind, axis] : {std::pair(AttentionKind::kEncoder, "auto"),
                                   std::pair(AttentionKind::kCausal, "sequence")}) {
    auto in = inputs(6);
    in.queries.x.select(2, 0).copy_(torch::tensor({{1.0, 2.0, 0.25, 0.75, 7.0, 9.0}}));
    in.queries.position = torch::tensor({{0, 1, 0, 1, -1, -1}});
    const auto method = make("focal-learned", {{"axis", std::string(axis)}}, kind);
    set(*method, "weight", torch::tensor({1.0, 0.0, 0.0}));
    expect_scale(method->forward(in).q, in.queries.n, 0,
                 {2 / 2.3, 2 / 2.3, 2 / 1.3, 2 / 1.3, 2.5, 2.5});
    EXPECT_EQ(method->cacheable(), kind == AttentionKind::kEncoder);
  }
}

TEST(FocalLearned, ClipsAndLetsTheGradientLeadBack) {
  auto in = inputs(2);
  in.queries.x.select(2, 0).copy_(torch::tensor({{100.0, -100.0}}));
  const auto method = make("focal-learned", {{"axis", std::string("token")}});
  set(*method, "weight", torch::tensor({1.0, 0.0, 0.0}));
  const auto a = method->forward(in).q.rows;
  expect_scale({a, {}}, in.queries.n, 0, {0.5, 10});
  // a falls as tau grows. Row 0 stands above the range: a loss that wants a larger a leads back,
  // its opposite does not.
  const auto bias = method->named_parameters()["bias"];
  const auto gradient = [&](double row0, double row1) {
    const auto loss = (a.squeeze() * torch::tensor({row0, row1}, kDouble)).sum();
    return torch::autograd::grad({loss}, {bias}, {}, /*retain_graph=*/true)[0].item<double>();
  };
  EXPECT_NEAR(gradient(-1, 0), 2.0 / 16, 1e-12);
  EXPECT_EQ(gradient(1, 0), 0);
  EXPECT_NEAR(gradient(0, 1), -2.0 / 0.04, 1e-9);
  EXPECT_EQ(gradient(0, -1), 0);
}

TEST(FocalLearned, RefusesToGoOnWithoutItsState) {
  auto in = inputs(2);
  in.queries.position = in.queries.position + 3;
  EXPECT_THROW(make("focal-learned")->forward(in), Error);
  in.past = torch::tensor({{6.0}}, kDouble);
  in.queries.x.select(2, 0).fill_(2);
  const auto method = make("focal-learned");
  set(*method, "weight", torch::tensor({1.0, 0.0, 0.0}));
  expect_scale(method->forward(in).q, in.queries.n, 0, {2 / 2.8, 2 / 2.8});
}

TEST(FocalLearned, RefusesAStartOutsideItsRange) {
  EXPECT_THROW(make("focal-learned", {{"t0", 3.0}}), Error);
}

TEST(Ssa, AddsTokenAndPosition) {
  auto in = inputs(3);
  in.q.select(3, 0).fill_(1);
  in.v.select(3, 1).fill_(-1);
  const auto method = make("ssa");
  set(*method, "q_w", torch::tensor({{1.0, 0.0, 0.0, 0.0}, {-2.0, 0.0, 0.0, 0.0}}));
  set(*method, "v_w", torch::tensor({{0.0, 3.0}}));
  const auto scales = method->forward(in);
  const double gelu = 0.8413447460685429;          // of 1
  const double gelu_minus = -0.15865525393145707;  // of -1
  const double g = 1 / (1 + std::exp(2.0));
  const auto position = [&](double token) {
    return std::vector{1 + token, 1 + token + g * std::log(2), 1 + token + g * std::log(3)};
  };
  expect_scale(scales.q, in.queries.n, 0, position(std::tanh(gelu)));
  expect_scale(scales.q, in.queries.n, 1, position(std::tanh(-2 * gelu)));
  expect_scale(scales.v, in.keys.n, 0, position(std::tanh(3 * gelu_minus)));
  EXPECT_FALSE(scales.k.present());
  EXPECT_FALSE(scales.q.rows.defined() || scales.v.rows.defined()) << "recipes for the kernel";
}

TEST(Ssa, FormsOfG) {
  const auto in = inputs(2);
  const auto at2 = [&](const MethodOptions& options) {
    return finish(make("ssa", options)->forward(in).q, in.queries.n, kDouble)[0][0][1]
        .item<double>();
  };
  EXPECT_NEAR(at2({{"g", std::string("expexp")}}), 1 + std::exp(-std::exp(1.5)) * std::log(2),
              1e-12);
  EXPECT_EQ(at2({{"g", std::string("linear")}}), 1);
  EXPECT_NEAR(at2({{"g", std::string("linear")}, {"slope0", 0.25}}), 1 + 0.25 * std::log(2), 1e-12);
  EXPECT_NEAR(at2({{"alpha0", 0.0}}), 1 + 0.5 * std::log(2), 1e-12);
}

TEST(Ssa, FeatureReadsTheFrequencyOfTheToken) {
  auto in = inputs(2);
  in.queries.tokens = torch::tensor({{0, 1}});
  const auto method = make("ssa", {{"f", std::string("feature")}, {"pos", false}, {"v", false}});
  EXPECT_THROW(method->forward(in), Error) << "no counts yet";
  method->set_token_counts(torch::tensor({1, 3}));
  set(*method, "q_w", torch::tensor({{0.5, 0.0}, {0.0, 2.0}}));
  const auto scales = method->forward(in);
  const double token = std::tanh(0.5);
  expect_scale(scales.q, in.queries.n, 0, {1 + token, 1 + token});
  // Counts 1 and 3, one added to each.
  const auto frequency = [](double f) { return 1 + std::tanh(2 * std::log(f)); };
  const auto values = finish(scales.q, in.queries.n, kDouble)[0][1];
  EXPECT_NEAR(values[0].item<double>(), frequency(1.0 / 3), 1e-6);  // the table is float32
  EXPECT_NEAR(values[1].item<double>(), frequency(2.0 / 3), 1e-6);
}

TEST(Ssa, MlpReadsTheInput) {
  auto in = inputs(1);
  in.queries.x.copy_(torch::tensor({{{0.0, 1.0, 0.0}}}));
  const auto method = make("ssa", {{"f", std::string("mlp")}, {"hidden", int64_t{1}}});
  set(*method, "q_first", torch::tensor({{5.0, 1.0, 7.0}}));
  set(*method, "q_w", torch::tensor({{2.0}, {0.0}}));
  const auto scales = method->forward(in);
  expect_scale(scales.q, in.queries.n, 0, {1 + std::tanh(2 * 0.8413447460685429)});
  expect_scale(scales.q, in.queries.n, 1, {1});
}

TEST(Ssa, MlpStartsFromOrthonormalDirections) {
  const auto method = make("ssa", {{"f", std::string("mlp")}, {"hidden", int64_t{3}}});
  const auto first = method->named_parameters()["q_first"];
  EXPECT_TRUE(torch::allclose(first.mm(first.t()), torch::eye(3, kDouble), 1e-6, 1e-6));
}

TEST(Ssa, RefusesToBePlainAttention) {
  EXPECT_THROW(make("ssa", {{"tok", false}, {"pos", false}}), Error);
  EXPECT_THROW(make("ssa", {{"q", false}, {"v", false}}), Error);
}

// By hand: 1 + s log n.
TEST(Slope, GrowsWithTheKeysInSightOnTopOfOne) {
  const auto in = inputs(3);
  expect_scale(make("slope")->forward(in).q, in.queries.n, 1, {1, 1, 1});
  const auto method = make("slope", {{"s0", 0.5}});
  expect_scale(method->forward(in).q, in.queries.n, 0,
               {1, 1 + 0.5 * std::log(2), 1 + 0.5 * std::log(3)});
  set(*method, "slope", torch::tensor({2.0, -1.0}));
  expect_scale(method->forward(in).q, in.queries.n, 1, {1, 1 - std::log(2), 1 - std::log(3)});
}

TEST(Ssmax, GrowsWithTheKeysInSight) {
  auto in = inputs(3);
  expect_scale(make("ssmax")->forward(in).q, in.queries.n, 1, {0, std::log(2), std::log(3)});
  expect_scale(make("ssmax", {{"learned", false}})->forward(in).q, in.queries.n, 0,
               {0, 0.43 * std::log(2), 0.43 * std::log(3)});
  const auto method = make("ssmax", {{"bias", true}, {"b0", 0.5}});
  set(*method, "slope", torch::tensor({2.0, -1.0}));
  in.queries.n =
      torch::tensor({{0, 1, 4}});  // a row that sees nothing counts as one that sees one key
  expect_scale(method->forward(in).q, in.queries.n, 0, {0.5, 0.5, 0.5 + 2 * std::log(4)});
  expect_scale(method->forward(in).q, in.queries.n, 1, {0.5, 0.5, 0.5 - std::log(4)});
}

TEST(LogN, ActsPastTheTrainedLength) {
  auto in = inputs(3);
  in.queries.n = torch::tensor({{4, 8, 64}});
  expect_scale(make("log-n")->forward(in).q, in.queries.n, 0, {1, 1, 2});
  expect_scale(make("log-n", {{"length", int64_t{2}}})->forward(in).q, in.queries.n, 0, {2, 3, 6});
  auto shape = small_shape();
  shape.trained_length = 0;
  EXPECT_THROW(make_method({{"log-n", {}}}, shape), Error);
}

TEST(Llama4, StepsWithThePosition) {
  auto in = inputs(4);
  in.queries.position = torch::tensor({{-1, 8190, 8191, 16383}});
  expect_scale(make("llama4")->forward(in).q, in.queries.n, 0,
               {1, 1, 1 + 0.1 * std::log(2), 1 + 0.1 * std::log(3)});
  expect_scale(make("llama4", {{"offset", int64_t{0}}})->forward(in).q, in.queries.n, 0,
               {1, 1, 1, 1 + 0.1 * std::log(2)});
}

TEST(Yarn, GrowsWithTheStretchPastTheTrainedLength) {
  auto in = inputs(3);
  in.queries.n = torch::tensor({{4, 8, 80}});
  const double stretched = 0.1 * std::log(10) + 1;
  expect_scale(make("yarn")->forward(in).q, in.queries.n, 0, {1, 1, stretched * stretched});
  auto shape = small_shape();
  shape.trained_length = 0;
  EXPECT_THROW(make_method({{"yarn", {}}}, shape), Error);
}

TEST(Head, IsOneNumberAQueryHead) {
  const auto in = inputs(1);
  const auto method = make("head");
  set(*method, "theta", torch::tensor({0.5, -1.0}));
  expect_scale(method->forward(in).q, in.queries.n, 0, {std::exp(0.5)});
  expect_scale(method->forward(in).q, in.queries.n, 1, {std::exp(-1)});
}

TEST(Value, IsOneNumberAKeyValueHead) {
  const auto in = inputs(1);
  const auto method = make("value");
  set(*method, "theta", torch::tensor({0.5}));
  expect_scale(method->forward(in).v, in.keys.n, 0, {std::exp(0.5)});
  EXPECT_EQ(method->parameter_count(), 1);
}

TEST(ValueScale, IsConstant) {
  const auto in = inputs(2);
  expect_scale(make("value-scale")->forward(in).v, in.keys.n, 0, {0.707, 0.707});
}

TEST(Product, MultipliesConstantsIntoTheRecipe) {
  auto in = inputs(3);
  in.q.fill_(0.5);
  const auto ssa = make("ssa");
  set(*ssa, "q_w", torch::tensor(0.3));
  const auto method = make("focal,ssa+head,value");
  set(*method, "ssa.q_w", torch::tensor(0.3));
  set(*method, "head.theta", torch::tensor({0.2, 0.0}));
  set(*method, "value.theta", torch::tensor({0.7}));
  const auto scales = method->forward(in);
  EXPECT_FALSE(scales.q.rows.defined() || scales.v.rows.defined()) << "still recipes";
  const auto alone = ssa->forward(in);
  const auto expect = [&](const RowScale& scale, const RowScale& base, double factor) {
    const auto difference = finish(scale, in.queries.n, kDouble).select(1, 0) -
                            finish(base, in.queries.n, kDouble).select(1, 0) * factor;
    EXPECT_LT(difference.abs().max().item<double>(), 1e-6);
  };
  expect(scales.q, alone.q, 2.5 * std::exp(0.2));
  expect(scales.v, alone.v, std::exp(0.7));
  EXPECT_FALSE(method->constant());
}

TEST(Product, FinishesOneOfTwoVaryingRecipes) {
  auto in = inputs(3);
  const auto scales = make("ssa,ssmax,log-n,focal-learned")->forward(in);
  std::vector<double> expected;
  for (const double n : {1.0, 2.0, 3.0}) {
    expected.push_back((1 + std::log(n) / (1 + std::exp(2.0))) * std::log(n) * 2.5);
  }
  expect_scale(scales.q, in.queries.n, 0, expected);
  EXPECT_TRUE(scales.q.rows.defined() && scales.q.has_recipe());
}

TEST(Product, FoldsWhenAllPartsDo) {
  const auto method = make("head,focal,value");
  set(*method, "head.theta", torch::tensor({0.2, 0.0}));
  const auto constant = method->constant();
  ASSERT_TRUE(constant);
  EXPECT_NEAR(constant->q[0].item<double>(), 2.5 * std::exp(0.2), 1e-6);
  EXPECT_NEAR(constant->v[0].item<double>(), 1, 1e-12);
}

TEST(Product, GradientsReachEveryPart) {
  auto in = inputs(3);
  in.q.fill_(0.5);
  in.queries.x.fill_(0.5);
  const auto method = make("ssa,head,focal-learned");
  const auto scales = method->forward(in);
  const auto loss = finish(scales.q, in.queries.n, kDouble).sum() +
                    finish(scales.v, in.keys.n, kDouble).square().sum();
  for (const auto& name : {"ssa.q_w", "ssa.q_slope", "head.theta", "focal-learned.bias"}) {
    const auto parameter = method->named_parameters()[name];
    const auto gradient = torch::autograd::grad({loss}, {parameter}, {}, /*retain_graph=*/true)[0];
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
  }
}

TEST(ParameterShare, OfSsaStaysUnderHalfAPercent) {
  struct Model {
    const char* name;
    LayerShape shape;
    double parameters;
  };
  const auto shape = [](int64_t layers, int64_t width, int64_t q_heads, int64_t kv_heads) {
    return LayerShape{.layers = layers,
                      .d_model = width,
                      .q_heads = q_heads,
                      .kv_heads = kv_heads,
                      .qk_size = width / q_heads,
                      .v_size = width / q_heads};
  };
  for (const auto& model : {Model{"GPT-2 small", shape(12, 768, 12, 12), 124'439'808},
                            Model{"Pythia-160m", shape(12, 768, 12, 12), 162'322'944},
                            Model{"SmolLM2-135M", shape(30, 576, 9, 3), 134'515'008}}) {
    const auto method = make_method({{"ssa", {}}}, model.shape);
    const int64_t heads = model.shape.q_heads + model.shape.kv_heads;
    EXPECT_EQ(method->parameter_count(), heads * (model.shape.qk_size + 1)) << model.name;
    const auto added = static_cast<double>(method->parameter_count() * model.shape.layers);
    EXPECT_LT(added / model.parameters, 0.005) << model.name;
  }
}

}  // namespace
}  // namespace tempera
