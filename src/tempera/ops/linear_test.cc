// The products of few and of many rows against libtorch's in double precision, and that the rest is
// libtorch's.
#include "tempera/ops/linear.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using Types = std::tuple<at::ScalarType, at::ScalarType>;

class LinearTypes : public testing::TestWithParam<Types> {
 protected:
  void SetUp() override { torch::manual_seed(3); }
};

void expect_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  const auto wide = [](const at::Tensor& t) { return t.defined() ? t.to(at::kDouble) : t; };
  const at::Tensor wanted =
      at::linear(wide(x), wide(weight), bias.defined() ? std::optional(wide(bias)) : std::nullopt);
  const at::Tensor y = ops::linear(x, weight, bias);
  EXPECT_EQ(y.scalar_type(), x.scalar_type());
  ASSERT_EQ(y.sizes(), wanted.sizes());
  if (y.numel() == 0) return;
  const double tolerance = x.scalar_type() == at::kFloat ? 2e-6 : 1e-2;
  EXPECT_LE((wide(y) - wanted).abs().max().item<double>(),
            tolerance * (1 + wanted.abs().max().item<double>()))
      << x.sizes() << " by " << weight.sizes();
}

TEST_P(LinearTypes, EqualsLibtorchs) {
  const auto [x_type, w_type] = GetParam();
  const at::Tensor weight = at::randn({37, 70}).to(w_type), bias = at::randn({37}).to(w_type);
  const std::vector<std::vector<int64_t>> shapes = {{70}, {1, 1, 70}, {3, 70}, {2, 4, 70}, {0, 70}};
  for (const auto& sizes : shapes) {
    const at::Tensor x = at::randn(sizes).to(x_type);
    expect_linear(x, weight, {});
    expect_linear(x, weight, bias);
  }
}

TEST_P(LinearTypes, TakesPartsOfTensors) {
  const auto [x_type, w_type] = GetParam();
  const at::Tensor x = at::randn({2, 6, 70}).to(x_type).select(1, 5).narrow(1, 3, 40);
  const at::Tensor weight = at::randn({37, 70}).to(w_type).narrow(1, 10, 40);
  expect_linear(x, weight, at::randn({74}).to(w_type).slice(0, 0, 74, 2));
}

INSTANTIATE_TEST_SUITE_P(All, LinearTypes,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(at::kFloat, at::kBFloat16)));

TEST(Linear, FewRowsHaveGradients) {
  const at::Tensor x = at::randn({2, 5}).requires_grad_();
  const at::Tensor weight = at::randn({3, 5}).requires_grad_();
  ops::linear(x, weight).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), weight.detach().sum(0).expand({2, 5})));
  EXPECT_TRUE(at::allclose(weight.grad(), x.detach().sum(0).expand({3, 5})));
}

TEST(Linear, ManyRowsEqualLibtorchs) {
  torch::manual_seed(4);
  const at::Tensor weight = at::randn({130, 150}).narrow(1, 7, 140), bias = at::randn({130});
  const at::Tensor x = at::randn({2, 80, 140});
  expect_linear(x, weight, {});
  expect_linear(x, weight, bias);
  expect_linear(x.transpose(0, 1), weight, bias);
}

// Which tensors want a gradient: x, weight, bias. A frozen weight is the common case.
class LinearGradients : public testing::TestWithParam<std::tuple<bool, bool, bool>> {};

TEST_P(LinearGradients, OfManyRowsEqualLibtorchs) {
  torch::manual_seed(5);
  const auto [x_wanted, weight_wanted, bias_wanted] = GetParam();
  const at::Tensor x = at::randn({2, 80, 140}), weight = at::randn({130, 140});
  const at::Tensor bias = at::randn({130}), d_y = at::randn({2, 80, 130});
  std::vector<std::vector<at::Tensor>> gradients;
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto leaf = [&](const at::Tensor& t, bool wanted) {
      return t.detach().clone().to(type).requires_grad_(wanted);
    };
    const std::vector<at::Tensor> leaves = {leaf(x, x_wanted), leaf(weight, weight_wanted),
                                            leaf(bias, bias_wanted)};
    const at::Tensor y = ops::linear(leaves[0], leaves[1], leaves[2]);
    ASSERT_EQ(y.requires_grad(), x_wanted || weight_wanted || bias_wanted);
    if (y.requires_grad()) y.backward(d_y.to(type));
    gradients.push_back({leaves[0].grad(), leaves[1].grad(), leaves[2].grad()});
  }
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor &ours = gradients[0][i], &wanted = gradients[1][i];
    ASSERT_EQ(ours.defined(), wanted.defined());
    if (!ours.defined()) continue;
    EXPECT_LE((ours - wanted).abs().max().item<double>(), 1e-4) << "argument " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearGradients,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

TEST(Linear, ManyRowsTakeAnExpandedGradient) {
  const at::Tensor x = at::randn({200, 120}).requires_grad_();
  const at::Tensor weight = at::randn({128, 120});
  ops::linear(x, weight).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), weight.sum(0).expand({200, 120}), 1e-4, 1e-4));
}

TEST(Linear, NoInputsGiveTheBias) {
  const at::Tensor bias = at::randn({3});
  expect_linear(at::empty({2, 0}), at::empty({3, 0}), bias);
  expect_linear(at::empty({2, 0}), at::empty({3, 0}), {});
}

TEST(Linear, OtherTypesAndSmallMatricesAreLibtorchs) {
  expect_linear(at::randn({2, 5}, at::kDouble), at::randn({3, 5}, at::kDouble), {});
  expect_linear(at::randn({200, 5}), at::randn({3, 5}), at::randn({3}));
  const at::NoGradGuard no_grad;
  EXPECT_ANY_THROW(ops::linear(at::randn({2, 5}), at::randn({3, 6})));
}

}  // namespace
}  // namespace tempera::ops
