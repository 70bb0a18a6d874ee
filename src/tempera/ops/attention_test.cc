#include "tempera/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tempera/ops/composed/composed.h"
#include "tempera/ops/schema.h"
#include "tempera/ops/test_util.h"

namespace tempera::ops {
namespace {

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16};

double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 3e-2;
}

AttentionArgs plain(at::ScalarType type, int64_t heads = 4, int64_t kv_heads = 2, int64_t rows = 37,
                    int64_t kv_rows = 37) {
  AttentionArgs args;
  args.q = random({2, heads, rows, 16}, 1, type);
  args.k = random({2, kv_heads, kv_rows, 16}, 2, type);
  args.v = random({2, kv_heads, kv_rows, 24}, 3, type);
  return args;
}

// Everything that the composition can do.
AttentionArgs composable(at::ScalarType type) {
  AttentionArgs args = plain(type);
  const at::ScalarType real = scale_type(type);
  args.a_q = random({2, 4, 37}, 4, real);
  args.a_k = random({1, 2, 37}, 5, real);
  args.a_v = random({2, 2, 1}, 6, real);
  args.q_recipe = {.source = random({2, 4, 37, 12}, 7, type),
                   .w = random({4, 12}, 8, real),
                   .g = random({4}, 9, real),
                   .c = random({4}, 10, real),
                   .s = random({4}, 11, real)};
  args.k_recipe.w = random({2, 16}, 12, real);
  args.v_recipe = {.source = {},
                   .w = random({2, 24}, 13, real),
                   .g = random({2}, 14, real),
                   .c = random({2}, 15, real),
                   .s = {}};
  args.bias = random({1, 4, 37, 37}, 16, real);
  args.documents = torch::tensor({{20, 17, 0}, {5, 30, 2}}, at::kLong);
  args.key_start = at::tensor({3, 0}, at::kLong);
  args.key_end = at::tensor({37, 36}, at::kLong);
  args.window = 9;
  args.causal = true;
  return args;
}

// What it cannot.
AttentionArgs everything(at::ScalarType type) {
  AttentionArgs args = composable(type);
  const at::ScalarType real = scale_type(type);
  args.sinks = random({4}, 17, real);
  args.post = random({2, 1, 37}, 18, real);
  args.cap = 3;
  args.dropout = 0.2;
  args.seed = 5;
  return args;
}

void require_gradients(AttentionArgs& args) {
  visit_differentiable(args, [](const char*, at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.detach().clone().requires_grad_();
  });
}

std::vector<at::Tensor> gradients_of(const AttentionArgs& args) {
  std::vector<at::Tensor> gradients;
  visit_differentiable(args, [&](const char*, const at::Tensor& tensor) {
    gradients.push_back(tensor.defined() ? tensor.grad() : at::Tensor());
  });
  return gradients;
}

void expect_same_gradients(const AttentionArgs& given, const AttentionArgs& expected,
                           double bound) {
  const std::vector<at::Tensor> ours = gradients_of(given);
  const std::vector<at::Tensor> theirs = gradients_of(expected);
  size_t next = 0;
  visit_differentiable(given, [&](const char* name, const at::Tensor& tensor) {
    const size_t i = next++;
    if (!tensor.defined()) return;
    EXPECT_LT(error_of(ours[i], theirs[i]), bound) << name;
    EXPECT_EQ(ours[i].scalar_type(), tensor.scalar_type()) << name;
  });
}

TEST(Attention, AgreesWithTorchWhenPlain) {
  for (const at::ScalarType type : kTypes)
    for (const bool causal : {false, true}) {
      AttentionArgs args = plain(type);
      args.causal = causal;
      AttentionArgs wide = args;
      require_gradients(args);
      for (at::Tensor* tensor : {&wide.q, &wide.k, &wide.v}) *tensor = tensor->to(at::kDouble);
      require_gradients(wide);
      const at::Tensor out = attention(args).out;
      const at::Tensor expected = at::scaled_dot_product_attention(wide.q, wide.k, wide.v, {}, 0,
                                                                   causal, {}, /*enable_gqa=*/true);
      EXPECT_EQ(out.scalar_type(), type);
      EXPECT_LT(error_of(out, expected), tolerance(type)) << type << causal;
      const at::Tensor weight = random(expected.sizes(), 30);
      out.backward(weight.to(type));
      expected.backward(weight);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_LT(error_of(gradients_of(args)[i], gradients_of(wide)[i]), tolerance(type))
            << type << causal << i;
    }
}

TEST(Attention, AgreesWithTheCompositionInValueAndGradients) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    AttentionArgs ours = composable(type);
    AttentionArgs theirs = composable(at::kDouble);
    require_gradients(ours);
    require_gradients(theirs);
    if (type == at::kFloat) {
      // The same numbers, in double precision.
      const auto rounded = differentiable(ours);
      size_t next = 0;
      visit_differentiable(theirs, [&](const char*, at::Tensor& tensor) {
        const at::Tensor& source = rounded[next++];
        if (source.defined()) tensor = source.detach().to(at::kDouble).requires_grad_();
      });
    }
    const double bound = type == at::kDouble ? 1e-10 : 2e-4;
    const at::Tensor out = attention(ours).out;
    const at::Tensor expected = composed_backend().attention(theirs).out;
    EXPECT_LT(error_of(out, expected), bound);
    const at::Tensor weight = random(expected.sizes(), 31);
    out.backward(weight.to(type));
    expected.backward(weight);
    expect_same_gradients(ours, theirs, bound);
  }
}

// So many logits that the composition takes the rows in pieces, and computes them again for the
// gradients.
TEST(Attention, ACompositionInPiecesIsTheWhole) {
  constexpr int64_t kHeads = 64, kRows = 1040;
  AttentionArgs ours;
  ours.q = random({1, kHeads, kRows, 8}, 50, at::kFloat);
  ours.k = random({1, 8, kRows, 8}, 51, at::kFloat);
  ours.v = random({1, 8, kRows, 16}, 52, at::kFloat);
  ours.bias = random({1, 1, kRows, kRows}, 53, at::kFloat);
  ours.documents = torch::tensor({{640, 400}}, at::kLong);
  ours.causal = true;
  ours.q_recipe.g = random({kHeads}, 54, at::kFloat);
  AttentionArgs theirs = ours;
  require_gradients(ours);
  require_gradients(theirs);
  const at::Tensor out = attention(ours).out, expected = composed_backend().attention(theirs).out;
  EXPECT_LT(error_of(out, expected), 2e-4);
  const at::Tensor weight = random(expected.sizes(), 55, at::kFloat);
  out.backward(weight);
  expected.backward(weight);
  expect_same_gradients(ours, theirs, 2e-4);
}

TEST(Attention, CrossAttentionAgreesWithTheComposition) {
  AttentionArgs args = plain(at::kDouble, 4, 2, 11, 29);
  args.documents = torch::tensor({{4, 7}, {11, 0}}, at::kLong);
  args.key_documents = torch::tensor({{20, 9, 0}, {29, 0, 0}}, at::kLong);
  args.key_counts = at::arange(58).view({2, 29});
  args.v_recipe = {.source = {}, .w = {}, .g = random({2}, 40), .c = random({2}, 41), .s = {}};
  args.q_recipe.g = random({4}, 42);
  EXPECT_LT(error_of(attention(args).out, composed_backend().attention(args).out), 1e-12);
}

TEST(Attention, StatisticsAgreeWithTheComposition) {
  for (AttentionArgs args : {composable(at::kDouble), plain(at::kDouble, 4, 2, 11, 29),
                             plain(at::kDouble, 4, 2, 0, 29)}) {
    args.want_entropy = args.want_max = true;
    if (args.bias.defined())
      args.bias.select(2, 30)
          .fill_(-std::numeric_limits<double>::infinity())
          .narrow(2, 29, 1)
          .fill_(1);
    const AttentionResult ours = attention(args), theirs = composed_backend().attention(args);
    EXPECT_TRUE(ours.lse.isinf().equal(theirs.lse.isinf()));
    EXPECT_LT(error_of(ours.lse.masked_fill(ours.lse.isinf(), 0),
                       theirs.lse.masked_fill(theirs.lse.isinf(), 0)),
              1e-12);
    EXPECT_LT(error_of(ours.entropy, theirs.entropy), 1e-12);
    EXPECT_TRUE(ours.max.isinf().equal(theirs.max.isinf()));
    EXPECT_LT(error_of(ours.max.masked_fill(ours.max.isinf(), 0),
                       theirs.max.masked_fill(theirs.max.isinf(), 0)),
              1e-12);
    EXPECT_LT(error_of(ours.out, theirs.out), 1e-12);
  }
}

// The loss along a random direction, by central differences.
TEST(Attention, GradientsAgreeWithFiniteDifferences) {
  const auto loss = [](const AttentionArgs& args) {
    const AttentionResult result = attention(args);
    const at::Tensor lse = result.lse.masked_fill(result.lse.isinf(), 0);
    return (result.out * random(result.out.sizes(), 50)).sum() +
           (lse * random(lse.sizes(), 51)).sum();
  };
  AttentionArgs args = everything(at::kDouble);
  require_gradients(args);
  loss(args).backward();
  const std::vector<at::Tensor> gradients = gradients_of(args);
  const at::NoGradGuard guard;
  const double step = 1e-5;
  for (size_t i = 0; i < kDifferentiable; ++i) {
    const at::Tensor tensor = differentiable(args)[i];
    if (!tensor.defined()) continue;
    const at::Tensor direction = random(tensor.sizes(), 60 + i);
    const auto moved = [&](double by) {
      AttentionArgs other = args;
      size_t next = 0;
      visit_differentiable(other, [&](const char*, at::Tensor& input) {
        if (next++ == i) input = input + by * direction;
      });
      return loss(other).item<double>();
    };
    const double expected = (moved(step) - moved(-step)) / (2 * step);
    const double given = (gradients[i] * direction).sum().item<double>();
    EXPECT_NEAR(given, expected, 1e-6 * std::max(1.0, std::abs(expected))) << i;
  }
}

TEST(Attention, ATemperatureOfOneIsPlainBitForBit) {
  for (const at::ScalarType type : kTypes) {
    AttentionArgs args = plain(type);
    args.causal = true;
    const AttentionResult expected = attention(args);
    AttentionArgs scaled = args;
    scaled.a_q = scaled.a_k = scaled.a_v = at::ones({1, 1, 1}, at::kDouble);
    EXPECT_TRUE(same_bits(attention(scaled).out, expected.out)) << type;
    AttentionArgs recipe = args;
    recipe.q_recipe.c = at::ones({4});
    recipe.q_recipe.w = at::zeros({4, 16});
    recipe.v_recipe.c = at::ones({2});
    recipe.v_recipe.g = at::zeros({2});
    EXPECT_TRUE(same_bits(attention(recipe).out, expected.out)) << type;
    EXPECT_TRUE(same_bits(attention(recipe).lse, expected.lse)) << type;
    recipe.q_recipe.c = at::full({4}, 1.5);
    EXPECT_GT(error_of(attention(recipe).out, expected.out), 1e-2) << type;
  }
}

TEST(Attention, StridesDoNotMatter) {
  for (const at::ScalarType type : kTypes) {
    AttentionArgs args = plain(type, 4, 4);
    const AttentionResult expected = attention(args);
    AttentionArgs strided = args;
    strided.q = args.q.transpose(1, 2).contiguous().transpose(1, 2);
    strided.k = args.k.transpose(2, 3).contiguous().transpose(2, 3);  // columns are apart
    strided.v = at::cat({args.v, args.v}, 3).slice(3, 0, 24);
    EXPECT_TRUE(same_bits(attention(strided).out, expected.out)) << type;
    args.k = args.k.slice(1, 0, 1).expand({2, 4, 37, 16});
    args.v = args.v.slice(0, 0, 1).expand({2, 4, 37, 24});
    strided.k = args.k.contiguous();
    strided.v = args.v.contiguous();
    EXPECT_TRUE(same_bits(attention(args).out, attention(strided).out)) << type;
    EXPECT_TRUE(attention(args).out.transpose(1, 2).is_contiguous());
  }
}

TEST(Attention, GradientOfAnExpandedInputIsSummed) {
  at::Tensor k = random({1, 1, 37, 16}, 2).requires_grad_();
  at::Tensor dense = k.detach().clone().requires_grad_();
  AttentionArgs args = plain(at::kDouble);
  args.k = k.expand({2, 2, 37, 16});
  attention(args).out.sum().backward();
  args.k = dense.repeat({2, 2, 1, 1});
  attention(args).out.sum().backward();
  EXPECT_LT(error_of(k.grad(), dense.grad()), 1e-12);
}

TEST(Attention, ARecipeMayReadItsOwnOperand) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const auto gradient = [&](const std::function<at::Tensor(const at::Tensor&)>& source_of) {
      AttentionArgs args = plain(type);
      args.q.requires_grad_();
      args.q_recipe.w = random({4, 16}, 8, type);
      args.q_recipe.source = source_of(args.q);
      (attention(args).out * random({2, 4, 37, 24}, 9, type)).sum().backward();
      return args.q.grad();
    };
    const at::Tensor expected = gradient([](const at::Tensor& q) { return q.clone(); });
    EXPECT_LT(error_of(gradient([](const at::Tensor&) { return at::Tensor(); }), expected), 1e-5);
    EXPECT_LT(error_of(gradient([](const at::Tensor& q) { return q; }), expected), 1e-5);
    EXPECT_LT(error_of(gradient([](const at::Tensor& q) { return q.view(q.sizes()); }), expected),
              1e-5);
    // A detached source passes nothing on, although it shares the memory of q.
    const at::Tensor detached = gradient([](const at::Tensor& q) { return q.detach(); });
    const at::Tensor copied = gradient([](const at::Tensor& q) { return q.detach().clone(); });
    EXPECT_LT(error_of(detached, copied), 1e-5);
    EXPECT_GT(error_of(detached, expected), 1e-3);
  }
}

TEST(Attention, ALogitStandsForItsSigmoid) {
  const at::Tensor numbers = random({4}, 8);
  const auto run = [&](bool is_logit) {
    AttentionArgs args = plain(at::kDouble);
    args.causal = true;
    const at::Tensor logit = numbers.clone().requires_grad_();
    args.q_recipe.g = is_logit ? logit : logit.sigmoid();
    args.q_recipe.g_is_logit = is_logit;
    const at::Tensor out = attention(args).out;
    (out * random(out.sizes(), 9)).sum().backward();
    return std::pair(out.detach(), logit.grad());
  };
  const auto [out, gradient] = run(true);
  const auto [expected, expected_gradient] = run(false);
  EXPECT_TRUE(same_bits(out, expected));
  EXPECT_TRUE(same_bits(gradient, expected_gradient));
}

TEST(Attention, BroadcastScalesEqualFullOnes) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {}, {37}, {4, 1}, {1, 1, 37}, {2, 1, 1}, {1, 4, 37}, {2, 4, 37}}) {
      at::Tensor scale = random(sizes, 70, type).requires_grad_();
      at::Tensor full = scale.detach().expand({2, 4, 37}).contiguous().requires_grad_();
      AttentionArgs args = plain(type);
      args.a_q = scale;
      const at::Tensor out = attention(args).out;
      out.square().sum().backward();
      args.a_q = full;
      const at::Tensor expected = attention(args).out;
      expected.square().sum().backward();
      EXPECT_TRUE(same_bits(out, expected));
      EXPECT_LT(error_of(scale.grad(), at::sum_to(full.grad(), sizes)), 1e-4);
    }
}

TEST(Attention, ConvertsParametersAndGivesTheirGradientsBackInTheirDtype) {
  AttentionArgs args = plain(at::kBFloat16);
  args.a_q = random({2, 4, 37}, 4, at::kDouble).requires_grad_();
  args.bias = random({1, 4, 37, 37}, 5, at::kBFloat16).requires_grad_();
  args.q_recipe.c = random({4}, 6, at::kHalf).requires_grad_();
  const AttentionResult result = attention(args);
  EXPECT_EQ(result.lse.scalar_type(), at::kFloat);
  result.out.sum().backward();
  EXPECT_EQ(args.a_q.grad().scalar_type(), at::kDouble);
  EXPECT_EQ(args.bias.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(args.q_recipe.c.grad().scalar_type(), at::kHalf);
  EXPECT_FALSE(args.q.grad().defined());
}

TEST(Attention, GivesTheOutputsThatWereAskedFor) {
  for (const at::ScalarType type : kTypes) {
    AttentionArgs args = plain(type);
    args.q.requires_grad_();
    const AttentionResult bare = attention(args);
    EXPECT_FALSE(bare.max.defined() || bare.entropy.defined() || bare.head_max.defined());
    EXPECT_TRUE(bare.lse.requires_grad());
    args.want_max = args.want_entropy = args.want_head_max = true;
    const AttentionResult all = attention(args);
    EXPECT_FALSE(all.max.requires_grad() || all.entropy.requires_grad() ||
                 all.head_max.requires_grad());
    const at::Tensor k = args.k.to(at::kDouble).repeat_interleave(2, 1);
    const at::Tensor logits = args.q.detach().to(at::kDouble).matmul(k.transpose(2, 3)) / 4;
    const at::Tensor log_p = logits.log_softmax(-1);
    const double bound = type == at::kDouble ? 1e-12 : 1e-4;
    EXPECT_LT(error_of(all.lse, logits.logsumexp(-1)), bound);
    EXPECT_LT(error_of(all.max, logits.amax(-1)), bound);
    EXPECT_LT(error_of(all.entropy, -(log_p * log_p.exp()).sum(-1)), bound);
    EXPECT_LT(error_of(all.head_max, logits.amax({0, 2, 3})), bound);
  }
}

TEST(Attention, LseAloneHasGradients) {
  AttentionArgs args = plain(at::kDouble);
  args.q.requires_grad_();
  attention(args).lse.sum().backward();
  const at::Tensor q = args.q.detach().clone().requires_grad_();
  const at::Tensor k = args.k.repeat_interleave(2, 1).transpose(2, 3);
  (q.matmul(k) / 4).logsumexp(-1).sum().backward();
  EXPECT_LT(error_of(args.q.grad(), q.grad()), 1e-12);
}

TEST(Attention, SavedStateServesTwiceAndNoticesChanges) {
  AttentionArgs args = everything(at::kDouble);
  require_gradients(args);
  const at::Tensor q = args.q * 1;
  AttentionArgs through = args;
  through.q = q;
  const at::Tensor loss = attention(through).out.sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = args.q.grad().clone();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_LT(error_of(args.q.grad(), 2 * once), 1e-12);
  {
    const at::NoGradGuard guard;
    q.mul_(2);
  }
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(Attention, RowsAndBatchesMayBeEmpty) {
  for (const at::ScalarType type : kTypes)
    for (const auto& [batch, rows, kv_rows] :
         std::vector<std::array<int64_t, 3>>{{0, 5, 5}, {2, 0, 0}, {2, 0, 5}, {2, 5, 0}}) {
      AttentionArgs args;
      args.q = random({batch, 4, rows, 16}, 1, type);
      args.k = random({batch, 2, kv_rows, 16}, 2, type);
      args.v = random({batch, 2, kv_rows, 16}, 3, type);
      args.q_recipe.w = random({4, 16}, 4, type);
      args.sinks = random({4}, 5, type);
      args.want_max = args.want_entropy = args.want_head_max = true;
      require_gradients(args);
      const AttentionResult result = attention(args);
      EXPECT_EQ(result.out.sizes(), at::IntArrayRef({batch, 4, rows, 16}));
      EXPECT_TRUE(result.out.eq(0).all().item<bool>());
      EXPECT_TRUE(result.lse.isneginf().all().item<bool>());
      EXPECT_TRUE(result.max.isneginf().all().item<bool>());
      EXPECT_TRUE(result.head_max.isneginf().all().item<bool>());
      EXPECT_TRUE(result.entropy.eq(0).all().item<bool>());
      result.out.sum().backward();
      for (const at::Tensor& gradient : gradients_of(args))
        EXPECT_TRUE(!gradient.defined() || gradient.eq(0).all().item<bool>());
    }
}

TEST(Attention, ARowThatSeesNothingIsZeroAndHasNoNan) {
  for (const at::ScalarType type : kTypes) {
    AttentionArgs args = everything(type);
    args.key_start = at::tensor({37, 10}, at::kLong);
    args.key_end = at::tensor({37, 30}, at::kLong);
    require_gradients(args);
    const AttentionResult result = attention(args);
    EXPECT_TRUE(result.out[0].eq(0).all().item<bool>());
    EXPECT_TRUE(result.lse[0].isneginf().all().item<bool>());
    result.out.sum().backward();
    for (const at::Tensor& gradient : gradients_of(args))
      EXPECT_TRUE(!gradient.defined() || gradient.isfinite().all().item<bool>());
  }
}

TEST(Attention, TheQueryOffsetDefaultsToTheEndOfTheKeys) {
  AttentionArgs args = plain(at::kDouble, 4, 2, 37, 37);
  args.causal = true;
  const at::Tensor whole = attention(args).out;
  args.q = args.q.slice(2, 30);
  EXPECT_LT(error_of(attention(args).out, whole.slice(2, 30)), 1e-12);
  args.q = plain(at::kDouble).q.slice(2, 10, 20);
  args.query_offset = 10;
  EXPECT_LT(error_of(attention(args).out, whole.slice(2, 10, 20)), 1e-12);
}

TEST(Attention, MetaTensorsHaveTheShapesOfRealOnes) {
  AttentionArgs args = everything(at::kBFloat16);
  args.want_max = args.want_entropy = args.want_head_max = true;
  const AttentionResult real = attention(args);
  visit_differentiable(args, [](const char*, at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(at::kMeta);
  });
  const AttentionResult meta = attention(args);
  for (const auto member : {&AttentionResult::out, &AttentionResult::lse, &AttentionResult::max,
                            &AttentionResult::entropy, &AttentionResult::head_max}) {
    EXPECT_EQ((meta.*member).sizes(), (real.*member).sizes());
    EXPECT_EQ((meta.*member).strides(), (real.*member).strides());
    EXPECT_EQ((meta.*member).scalar_type(), (real.*member).scalar_type());
    EXPECT_TRUE((meta.*member).is_meta());
  }
}

}  // namespace
}  // namespace tempera::ops
