// The fused passes against the same formula composed in double precision, values and gradients.
#include "tempera/ops/fused.h"

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>

#include "tempera/ops/projected.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using Inputs = std::vector<at::Tensor>;
using Formula = std::function<at::Tensor(const Inputs&)>;

// How the numbers of a test are stored, and where.
struct Storage {
  at::ScalarType dtype;
  at::DeviceType device;

  at::Tensor of(const at::Tensor& x) const { return x.to(device, dtype); }
};

Inputs leaves(const Inputs& from, const Storage& storage) {
  Inputs result;
  for (const at::Tensor& x : from)
    result.push_back(x.defined() ? storage.of(x.detach()).clone().requires_grad_() : x);
  return result;
}

// Runs the formula as stored and in double on the CPU, from the same (rounded) numbers; their
// difference is rounding alone.
void expect_agrees(const Inputs& inputs, const Formula& formula, const Storage& storage) {
  const double tolerance = storage.dtype == at::kFloat ? 3e-6 : 2e-2;
  const Inputs fast = leaves(inputs, storage);
  const Inputs exact = leaves(fast, {at::kDouble, at::kCPU});
  const at::Tensor y = formula(fast), z = formula(exact);
  EXPECT_EQ(y.sizes(), z.sizes());
  const auto close = [&](const at::Tensor& a, const at::Tensor& b, const char* what) {
    const double error = (a.to(at::kCPU, at::kDouble) - b).abs().max().item<double>();
    EXPECT_LE(error, tolerance * (1 + b.abs().max().item<double>())) << what;
  };
  close(y, z, "value");
  const at::Tensor direction = at::randn(z.sizes(), at::kDouble).to(storage.dtype).to(at::kDouble);
  y.backward(direction.to(y.options()));
  z.backward(direction);
  for (size_t i = 0; i < fast.size(); ++i)
    if (fast[i].defined()) close(fast[i].grad(), exact[i].grad(), "gradient");
}

class Fused : public testing::TestWithParam<Storage> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA && !torch::cuda::is_available())
      GTEST_SKIP() << "there is no GPU that torch can use";
    torch::manual_seed(7);
  }
};

TEST_P(Fused, Norm) {
  for (const int64_t size : {1, 7, 16, 33, 384}) {
    for (const bool centred : {false, true}) {
      const auto f = [&](const Inputs& in) { return norm(in[0], in[1], in[2], 1e-5, centred); };
      const at::Tensor x = at::randn({3, 5, size}) + 0.5;
      expect_agrees({x, at::randn({size}), at::randn({size})}, f, GetParam());
      expect_agrees({x, at::Tensor(), at::Tensor()}, f, GetParam());
    }
  }
}

TEST_P(Fused, AddNorm) {
  for (const int64_t size : {1, 33, 384}) {
    for (const bool centred : {false, true}) {
      // Gradients through the sum, the norm, and both.
      for (const int way : {0, 1, 2}) {
        const auto f = [&](const Inputs& in) {
          const auto [h, y] = add_norm(in[0], in[1], in[2], in[3], 1e-5, centred);
          return way == 0 ? h * 1 : way == 1 ? y : h + y;
        };
        const at::Tensor x = at::randn({3, 5, size}) + 0.5, residual = at::randn({3, 5, size});
        Inputs inputs{x, residual, at::randn({size}), at::randn({size})};
        if (way == 0) inputs[2] = inputs[3] = at::Tensor();  // they get no gradient
        expect_agrees(inputs, f, GetParam());
      }
    }
  }
}

TEST_P(Fused, Swiglu) {
  for (const int64_t size : {2, 14, 32, 130})
    expect_agrees(
        {at::randn({6, size}) * 4}, [](const Inputs& in) { return swiglu(in[0]); }, GetParam());
}

TEST_P(Fused, SwigluOfLargeNumbersIsFinite) {
  const at::Tensor x = GetParam().of(at::tensor({-200.0, 200.0, 3.0, 3.0})).view({1, 4});
  const at::Tensor y = swiglu(x).to(at::kDouble);
  EXPECT_NEAR(y[0][0].item<double>(), 0, 1e-30);
  EXPECT_EQ(y[0][1].item<double>(), 600);
}

TEST_P(Fused, WithoutGradientsTheValuesAreTheSame) {
  const auto numbers = [](at::IntArrayRef sizes) { return at::randn(sizes).to(GetParam().device); };
  const at::Tensor x = GetParam().of(at::randn({2, 3, 64})).requires_grad_();
  const at::Tensor gain = numbers({64}), cos = numbers({3, 4}), sin = numbers({3, 4});
  const auto all = [&] {
    const at::Tensor rows = heads_of(x, 4, 2, 8).rows;
    return Inputs{norm(x, gain, {}, 1e-5, true), swiglu(x), gelu(x, true), rotary(rows, cos, sin)};
  };
  const Inputs with = all();
  const at::NoGradGuard no_grad;
  const Inputs without = all();
  for (size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(at::equal(with[i], without[i])) << i;
}

TEST_P(Fused, Gelu) {
  for (const bool by_tanh : {false, true})
    expect_agrees(
        {at::randn({3, 5, 40}) * 3}, [&](const Inputs& in) { return gelu(in[0], by_tanh); },
        GetParam());
}

TEST_P(Fused, RotaryTurnsPairsAndBack) {
  const at::Tensor angle = at::rand({9, 6}) * 6;
  const at::Tensor positions = at::tensor({4, 0, 8, 8, 1, 2}).view({2, 3});
  for (const at::Tensor& p : {at::Tensor(), positions}) {
    expect_agrees(
        {at::randn({2, 4, 3, 16})},
        [&](const Inputs& in) {
          const at::Tensor there = angle.to(in[0].device());
          return rotary(in[0], there.cos(), there.sin(), p.defined() ? p.to(in[0].device()) : p);
        },
        GetParam());
  }
  const at::Tensor x = GetParam().of(at::randn({1, 1, 9, 16}));
  const at::Tensor cos = angle.cos().to(x.device()), sin = angle.sin().to(x.device());
  const at::Tensor back = rotary(rotary(x, cos, sin), cos, -sin);
  EXPECT_EQ(back.scalar_type(), x.scalar_type());
  EXPECT_LT((back - x).abs().max().item<double>(), GetParam().dtype == at::kFloat ? 1e-6 : 5e-2);
}

TEST_P(Fused, LinearCrossEntropy) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const int64_t classes : {3, 16, 100}) {
      const at::Tensor targets = at::randint(-2, classes, {37}, at::kLong);
      expect_agrees(
          {at::randn({37, 24}), at::randn({classes, 24}) * 0.5},
          [&](const Inputs& in) {
            return linear_cross_entropy(in[0], in[1], targets.to(in[0].device()), smoothing);
          },
          GetParam());
    }
  }
}

TEST_P(Fused, LinearCrossEntropyWithShares) {
  const at::Tensor targets = at::randint(-2, 16, {37}, at::kLong);
  const at::Tensor shares = at::randint(0, 4, {37}).to(at::kFloat);
  expect_agrees(
      {at::randn({37, 24}), at::randn({16, 24}) * 0.5},
      [&](const Inputs& in) {
        const auto device = in[0].device();
        return linear_cross_entropy(in[0], in[1], targets.to(device), 0.1, shares.to(device));
      },
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(Storage, Fused,
                         testing::Values(Storage{at::kFloat, at::kCPU},
                                         Storage{at::kBFloat16, at::kCPU},
                                         Storage{at::kFloat, at::kCUDA},
                                         Storage{at::kBFloat16, at::kCUDA}),
                         [](const auto& storage) {
                           return c10::toString(storage.param.dtype) +
                                  std::string(storage.param.device == at::kCUDA ? "OnCuda" : "");
                         });

// In bfloat16 the loss of many rows would lose all but its first digits.
TEST(FusedCrossEntropy, TheLossIsFloatOnEveryDevice) {
  for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
    if (device == at::kCUDA && !torch::cuda::is_available()) continue;
    const Storage storage{at::kBFloat16, device};
    const at::Tensor loss =
        linear_cross_entropy(storage.of(at::randn({5, 8})), storage.of(at::randn({7, 8})),
                             at::randint(0, 7, {5}, at::kLong).to(device));
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
  }
}

TEST(FusedCrossEntropy, ManyRowsGoThroughInParts) {
  torch::manual_seed(3);
  // More logits than exist at once.
  const at::Tensor hidden = at::randn({900, 8}), weight = at::randn({8192, 8});
  const at::Tensor targets = at::randint(0, 8192, {900}, at::kLong);
  expect_agrees({hidden, weight},
                [&](const Inputs& in) { return linear_cross_entropy(in[0], in[1], targets); },
                {at::kFloat, at::kCPU});
}

// A target that counts three times is its row three times.
TEST(FusedCrossEntropy, SharesAreRepeatedRows) {
  torch::manual_seed(6);
  const at::Tensor rows = at::randn({5, 8}), targets = at::tensor({1L, 0L, -100L, 4L, 2L});
  const at::Tensor counts = at::tensor({3L, 1L, 2L, 0L, 1L});
  const auto gradients = [&](bool repeat) {
    at::Tensor hidden = rows.clone().requires_grad_();
    torch::manual_seed(7);
    at::Tensor weight = at::randn({6, 8}).requires_grad_();
    const at::Tensor loss =
        repeat ? linear_cross_entropy(hidden.repeat_interleave(counts, 0), weight,
                                      targets.repeat_interleave(counts, 0))
               : linear_cross_entropy(hidden, weight, targets, 0, counts.to(at::kFloat));
    loss.backward();
    return at::cat({loss.detach().view({1}), hidden.grad().flatten(), weight.grad().flatten()});
  };
  EXPECT_TRUE(at::allclose(gradients(false), gradients(true), 1e-5, 1e-6));
  EXPECT_THROW(linear_cross_entropy(rows, at::randn({6, 8}), targets, 0, at::ones({4})),
               c10::Error);
}

TEST(FusedCrossEntropy, NothingCountsGivesZero) {
  at::Tensor hidden = at::randn({4, 8}).requires_grad_();
  const at::Tensor loss =
      linear_cross_entropy(hidden, at::randn({5, 8}), at::full({4}, -100, at::kLong));
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(hidden.grad().abs().sum().item<double>(), 0);
}

TEST(FusedCrossEntropy, AFrozenWeightGetsNoGradientAndChangesNoOther) {
  torch::manual_seed(4);
  const at::Tensor rows = at::randn({50, 8}), targets = at::randint(0, 30, {50}, at::kLong);
  const auto gradient = [&](at::Tensor& weight) {
    at::Tensor hidden = rows.clone().requires_grad_();
    linear_cross_entropy(hidden, weight, targets).backward();
    return hidden.grad();
  };
  at::Tensor frozen = at::randn({30, 8}), learned = frozen.clone().requires_grad_();
  EXPECT_TRUE(at::equal(gradient(frozen), gradient(learned)));
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_TRUE(learned.grad().defined());
}

TEST(FusedCrossEntropy, RefusesATargetOutsideTheVocabulary) {
  EXPECT_THROW(linear_cross_entropy(at::randn({2, 8}), at::randn({5, 8}), at::tensor({1L, 5L})),
               c10::Error);
}

TEST(FusedAdamW, EqualsTorchsOwn) {
  torch::manual_seed(5);
  at::Tensor ours = at::randn({333}), theirs = ours.clone().requires_grad_();
  const at::Tensor mean = at::zeros({333}), square = at::zeros({333});
  torch::optim::AdamW optimizer(
      {theirs}, torch::optim::AdamWOptions(0.01).betas({0.9, 0.98}).weight_decay(0.1));
  for (int64_t step = 1; step <= 20; ++step) {
    const at::Tensor g = at::randn({333});
    theirs.mutable_grad() = g * 0.5;
    optimizer.step();
    adamw(ours, g, mean, square,
          {.rate = 0.01,
           .beta1 = 0.9,
           .beta2 = 0.98,
           .epsilon = 1e-8,
           .decay = 0.1,
           .step = step,
           .gradient_factor = 0.5});
  }
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace tempera::ops
