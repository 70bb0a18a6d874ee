// The product of few rows against libtorch's in double precision, and that the rest is libtorch's.
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

TEST(Linear, NoInputsGiveTheBias) {
  const at::Tensor bias = at::randn({3});
  expect_linear(at::empty({2, 0}), at::empty({3, 0}), bias);
  expect_linear(at::empty({2, 0}), at::empty({3, 0}), {});
}

TEST(Linear, OtherTypesAndManyRowsAreLibtorchs) {
  expect_linear(at::randn({2, 5}, at::kDouble), at::randn({3, 5}, at::kDouble), {});
  expect_linear(at::randn({200, 5}), at::randn({3, 5}), at::randn({3}));
  const at::NoGradGuard no_grad;
  EXPECT_ANY_THROW(ops::linear(at::randn({2, 5}), at::randn({3, 6})));
}

}  // namespace
}  // namespace tempera::ops
