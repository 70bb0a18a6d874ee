// The operators on a GPU against the CPU's in double precision. What libtorch composes is tested
// by tests/cuda_test.py.
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "tempera/ops/adamw_list.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/cuda/cuda.h"
#include "tempera/ops/graph.h"
#include "tempera/ops/test_util.h"

namespace tempera::ops {
namespace {

using at::Tensor;

class CudaOps : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU that torch can use";
    if (!cuda::has_kernels(at::kCUDA)) GTEST_SKIP() << "this program has no CUDA kernels";
  }
  at::ScalarType type() const { return GetParam(); }
  double limit() const { return type() == at::kFloat ? 2e-5 : 2e-2; }

  // The same numbers for both sides: rounded to the type, then wide on the CPU.
  Tensor rows(at::IntArrayRef sizes, uint64_t seed) { return random(sizes, seed, type()); }
};

struct Side {
  at::Device device;
  Tensor operator()(const Tensor& x) const {
    const Tensor placed = device.is_cuda()        ? x.to(device)
                          : x.is_floating_point() ? x.to(at::kDouble)
                                                  : x;
    return x.is_floating_point() ? placed.clone().requires_grad_() : placed;
  }
};

using Results = std::vector<Tensor>;

// body(side) gives outputs and leaves; the outputs' gradients are random.
void compare(double limit, const std::function<std::pair<Results, Results>(const Side&)>& body) {
  std::vector<Results> sides;
  for (const at::Device device : {at::Device(at::kCUDA, 0), at::Device(at::kCPU)}) {
    const auto [outputs, leaves] = body({device});
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < outputs.size(); ++i)
      gradients.push_back(
          random(outputs[i].sizes(), 900 + i).to(outputs[i].scalar_type()).to(device));
    torch::autograd::backward(outputs, gradients);
    Results results;
    for (const Tensor& output : outputs) results.push_back(output.detach().cpu());
    for (const Tensor& leaf : leaves) results.push_back(leaf.grad().cpu());
    sides.push_back(results);
  }
  for (size_t i = 0; i < sides[0].size(); ++i)
    EXPECT_LE(error_of(sides[0][i], sides[1][i]), limit) << "result " << i;
}

TEST_P(CudaOps, Norm) {
  for (const bool centred : {false, true}) {
    const Tensor x = rows({3, 5, 96}, 1), residual = rows({3, 5, 96}, 2);
    const Tensor gain = random({96}, 3, at::kFloat), bias = random({96}, 4, at::kFloat);
    compare(limit(), [&](const Side& side) {
      const Tensor a = side(x), b = side(residual), g = side(gain), c = side(bias);
      const auto [h, y] = add_norm(a, b, g, c, 1e-5, centred);
      const Tensor alone = norm(a, g, c, 1e-5, centred);
      return std::pair<Results, Results>{{h, y, alone}, {a, b, g, c}};
    });
  }
}

TEST_P(CudaOps, Swiglu) {
  const Tensor x = rows({7, 48}, 1);
  compare(limit(), [&](const Side& side) {
    const Tensor a = side(x);
    return std::pair<Results, Results>{{swiglu(a)}, {a}};
  });
}

TEST_P(CudaOps, Embedding) {
  const Tensor table = random({11, 16}, 1, at::kFloat);
  const Tensor ids = torch::randint(11, {2, 9}, torch::kInt64);
  compare(limit(), [&](const Side& side) {
    const Tensor t = side(table);
    const Tensor y = embedding(t, side(ids), side.device.is_cuda() ? type() : at::kDouble);
    return std::pair<Results, Results>{{y}, {t}};
  });
}

TEST_P(CudaOps, CrossEntropy) {
  const Tensor hidden = rows({37, 24}, 1), weight = rows({50, 24}, 2);
  Tensor targets = torch::randint(50, {37}, torch::kInt64);
  targets[3] = -100;
  for (const double smoothing : {0.0, 0.1})
    compare(limit(), [&](const Side& side) {
      const Tensor h = side(hidden), w = side(weight);
      return std::pair<Results, Results>{{linear_cross_entropy(h, w, side(targets), smoothing) * 3},
                                         {h, w}};
    });
}

TEST_P(CudaOps, Rotary) {
  const Tensor x = rows({2, 3, 6, 24}, 1);
  const Tensor angle = random({9, 8}, 2, at::kFloat);
  const Tensor positions = torch::randint(9, {2, 6}, torch::kInt64);
  for (const bool given : {false, true})
    compare(limit(), [&](const Side& side) {
      const Tensor a = side(x);
      const auto table = [&](const Tensor& t) { return t.to(side.device); };
      const Tensor at_rows = given ? positions.to(side.device) : Tensor();
      return std::pair<Results, Results>{
          {rotary(a, table(angle.cos()), table(angle.sin()), at_rows)}, {a}};
    });
}

// The prologue against its parts: split, norm, rotation, scales.
TEST_P(CudaOps, Prologue) {
  const int64_t batch = 2, length = 10, heads = 4, kv_heads = 2, size = 16;
  const Tensor x = rows({batch, length, (heads + 2 * kv_heads) * size}, 1);
  const Tensor gain = random({size}, 2, at::kFloat), w = random({heads, size}, 3, at::kFloat);
  const Tensor g = random({heads}, 4, at::kFloat), c = random({heads}, 5, at::kFloat);
  const Tensor v_rows = random({batch, 1, length}, 6, at::kFloat);
  const Tensor angle = random({length, size / 2}, 7, at::kFloat);
  const Tensor log_n = torch::arange(1, length + 1, torch::kFloat).log().expand({batch, length});
  for (const bool is_logit : {false, true})
    compare(3 * limit(), [&](const Side& side) {
      const Tensor a = side(x), gains = side(gain), ws = side(w), gs = side(g), cs = side(c),
                   vs = side(v_rows);
      const Tensor cos = angle.cos().to(side.device), sin = angle.sin().to(side.device);
      const Tensor counts = log_n.to(side.device);
      Results out;
      if (side.device.is_cuda()) {
        cuda::PrologueArgs args{.x = a, .size = size, .operands = {}};
        args.epsilon = 1e-6;
        args.cos = cos;
        args.sin = sin;
        args.log_n = counts;
        cuda::PrologueOperand q{.heads = heads, .norm = true, .rotate = true, .gain = gains};
        q.recipe.w = ws;
        q.recipe.g = gs;
        q.recipe.g_is_logit = is_logit;
        q.recipe.c = cs;
        args.operands = {q, {.heads = kv_heads, .rotate = true}, {.heads = kv_heads, .rows = vs}};
        out = cuda::prologue(args);
      } else {
        const Tensor q = heads_of(a, 0, heads, size).rows;
        const Tensor k = heads_of(a, heads, kv_heads, size).rows;
        const Tensor v = heads_of(a, heads + kv_heads, kv_heads, size).rows;
        const auto head = [](const Tensor& t) { return t.view({1, -1, 1}); };
        const Tensor scale =
            head(cs) + at::tanh((at::gelu(q) * ws.unsqueeze(1)).sum(-1)) +
            head(is_logit ? gs.sigmoid() : gs) * counts.to(at::kDouble).unsqueeze(1);
        out = {rotary(norm(q, gains, {}, 1e-6, false), cos, sin) * scale.unsqueeze(-1),
               rotary(k, cos, sin), v * vs.unsqueeze(-1)};
      }
      return std::pair<Results, Results>{out, {a, gains, ws, gs, cs, vs}};
    });
}

// The gradients of ready rows take the place of those given, unless somebody else sees them.
TEST_P(CudaOps, PrologueLeavesGradientsThatOthersHold) {
  const Tensor x = rows({2, 3, 8, 16}, 1).cuda().requires_grad_();
  cuda::PrologueArgs args{.x = {}, .size = 16, .operands = {{.heads = 3, .x = x}}};
  args.operands[0].recipe.c = random({3}, 2, at::kFloat).cuda();
  const Tensor out = cuda::prologue(args)[0];
  const auto gradient = [&](Tensor given) {
    return torch::autograd::grad({out}, {x}, {std::move(given)}, /*retain_graph=*/true)[0];
  };
  const Tensor held = rows({2, 3, 8, 16}, 3).cuda(), kept = held.clone();
  const Tensor expected = gradient(held);
  EXPECT_TRUE(same_bits(held, kept));
  EXPECT_TRUE(same_bits(gradient(held * 1), expected));
  // One number for all elements.
  const Tensor one = at::ones({}, out.options());
  EXPECT_TRUE(same_bits(gradient(at::ones({}, out.options()).expand_as(out)),
                        gradient(one.expand_as(out).contiguous())));
}

// Temperatures of ready q, k and v: of q and v in one pass, in front of libtorch's attention.
TEST_P(CudaOps, AttentionWithTemperatures) {
  const int64_t batch = 2, length = 24, heads = 4, kv_heads = 2, size = 16;
  const Tensor q = rows({batch, heads, length, size}, 1);
  const Tensor k = rows({batch, kv_heads, length, size}, 2);
  const Tensor v = rows({batch, kv_heads, length, size}, 3);
  const Tensor q_w = random({heads, size}, 4, at::kFloat), q_g = random({heads}, 5, at::kFloat);
  const Tensor v_w = random({kv_heads, size}, 6, at::kFloat),
               v_g = random({kv_heads}, 7, at::kFloat);
  compare(3 * limit(), [&](const Side& side) {
    const Results leaves = {side(q), side(k), side(v), side(q_w), side(q_g), side(v_w), side(v_g)};
    AttentionArgs args;
    args.causal = true;
    args.q = leaves[0];
    args.k = leaves[1];
    args.v = leaves[2];
    args.q_recipe.w = leaves[3];
    args.q_recipe.g = leaves[4];
    args.v_recipe.w = leaves[5];
    args.v_recipe.g = leaves[6];
    args.q_recipe.g_is_logit = args.v_recipe.g_is_logit = true;
    return std::pair<Results, Results>{{attention(args).out}, leaves};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, CudaOps, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& test) { return std::string(at::toString(test.param)); });

using CudaStep = CudaOps;

TEST_P(CudaStep, AdamWInAGraphEqualsTheHosts) {
  const Tensor start = random({300}, 1, at::kFloat), slope = random({300}, 2, at::kFloat) * 5;
  Tensor host = start.clone(), host_mean = at::zeros_like(host), host_square = at::zeros_like(host);
  Tensor value = start.cuda().requires_grad_();
  const Tensor mean = at::zeros_like(value).detach(), square = at::zeros_like(value).detach();
  const Tensor copy = value.detach().to(at::kBFloat16);
  AdamWList list({{value, mean, square, 0.1, 0.5, copy}});
  const Tensor input = slope.cuda(), result = at::zeros({2}, input.options());
  CudaGraph graph;
  graph.capture([] {},
                [&] {
                  value.mutable_grad() = input * 1;
                  list.norm(1.0, result);
                  list.step(result);
                });
  list.set_gradients();
  for (int64_t step = 1; step <= 3; ++step) {
    const AdamWStep numbers{
        .rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .step = step};
    list.set_step(numbers);
    graph.replay();
    AdamWStep own = numbers;
    own.rate *= 0.5;
    own.gradient_factor = 1 / slope.norm().item<double>();
    adamw(host, slope, host_mean, host_square, own);
  }
  EXPECT_NEAR(result[0].item<double>(), slope.norm().item<double>(), 1e-3);
  EXPECT_LE(error_of(value.detach().cpu(), host), 1e-5);
  EXPECT_TRUE(same_bits(copy, value.detach().to(at::kBFloat16)));
  // A gradient that is not finite changes nothing.
  input[7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor before = value.detach().clone();
  graph.replay();
  EXPECT_TRUE(same_bits(before, value.detach()));
  EXPECT_NE(result[0].item<double>(), result[0].item<double>());
}

TEST_P(CudaStep, PrefetchedBatchesArriveInOrder) {
  Prefetch prefetch;
  for (int64_t i = 0; i < 4; ++i) {
    prefetch.start({at::full({1000}, i, at::kLong), Tensor()});
    const auto taken = prefetch.take();
    EXPECT_EQ(taken[0].sum().item<int64_t>(), 1000 * i);
    EXPECT_FALSE(taken[1].defined());
  }
}

// What a GPU without our kernels does, whichever this one has.
class Composition : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU that torch can use";
  }
  double limit() const { return GetParam() == at::kFloat ? 2e-5 : 2e-2; }
};

struct MaskCase {
  int64_t size = 64;     // of a head
  bool packed = false;   // two documents, else one
  bool shifted = false;  // by a bias
};

AttentionArgs grouped_heads(const Side& side, at::ScalarType type, int64_t rows, MaskCase c) {
  const auto part = [&](int64_t heads, uint64_t seed) {
    return side(random({1, heads, rows, c.size}, seed, type));
  };
  AttentionArgs args;
  args.q = part(6, 1);
  args.k = part(2, 2);
  args.v = part(2, 3);
  args.causal = true;
  if (c.packed)
    args.documents = torch::tensor({{rows / 3, rows - rows / 3}}, at::kLong).to(side.device);
  if (c.shifted) args.bias = side(random({1, 1, rows, rows}, 4, at::kFloat));
  return args;
}

TEST_P(Composition, AgreesWithTheCpu) {
  for (const MaskCase c : {MaskCase{}, MaskCase{.size = 20}, MaskCase{.packed = true},
                           MaskCase{.size = 20, .packed = true, .shifted = true}})
    compare(limit(), [&](const Side& side) {
      const AttentionArgs args = grouped_heads(side, GetParam(), 70, c);
      Results leaves = {args.q, args.k, args.v};
      if (c.shifted) leaves.push_back(args.bias);
      return std::pair<Results, Results>{{composed_backend().attention(args).out}, leaves};
    });
}

// In pieces, against all at once in double precision on the same GPU.
TEST_P(Composition, OfManyRowsAgreesWithTheKernels) {
  if (!cuda::has_kernels(at::kCUDA)) GTEST_SKIP() << "this program has no CUDA kernels";
  std::vector<Results> sides;
  for (const bool composed : {true, false}) {
    const AttentionArgs args = grouped_heads({at::kCUDA}, GetParam(), 4096, {.packed = true});
    const Tensor out = (composed ? composed_backend().attention(args) : attention(args)).out;
    out.backward(random(out.sizes(), 5, GetParam()).to(at::kCUDA));
    sides.push_back(
        {out.detach().cpu(), args.q.grad().cpu(), args.k.grad().cpu(), args.v.grad().cpu()});
  }
  for (size_t i = 0; i < sides[0].size(); ++i)
    EXPECT_LE(error_of(sides[0][i], sides[1][i]), limit()) << "result " << i;
}

// Bytes at the most while an attention and its gradients are computed.
int64_t peak_bytes(at::ScalarType type, int64_t rows, MaskCase c, bool composed) {
  const AttentionArgs args = grouped_heads({at::kCUDA}, type, rows, c);
  at::DeviceAllocator* memory = at::getDeviceAllocator(at::kCUDA);
  const auto bytes = [&] {
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return memory->getDeviceStats(0).allocated_bytes[all];
  };
  memory->resetPeakStats(0);
  const int64_t before = bytes().current;
  const Tensor out = (composed ? composed_backend().attention(args) : attention(args)).out;
  out.backward(at::ones_like(out));
  return bytes().peak - before;
}

TEST_P(Composition, MemoryGrowsWithTheRowsAndNotWithTheirSquare) {
  constexpr int64_t kRows = 32768;
  const int64_t one_head = kRows * kRows;  // bytes of the smallest matrix of all pairs
  for (const bool composed : {true, false})
    for (const MaskCase c : {MaskCase{}, MaskCase{.size = 20}, MaskCase{.packed = true}}) {
      if (!composed && c.size % 8 != 0) continue;
      const int64_t half = peak_bytes(GetParam(), kRows / 2, c, composed);
      const int64_t whole = peak_bytes(GetParam(), kRows, c, composed);
      EXPECT_LT(static_cast<double>(whole), 2.2 * static_cast<double>(half))
          << composed << c.size << c.packed;
      EXPECT_LT(whole, 2 * one_head) << composed << c.size << c.packed;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Composition, testing::Values(at::kFloat, at::kBFloat16));
INSTANTIATE_TEST_SUITE_P(Once, CudaStep, testing::Values(at::kFloat));

}  // namespace
}  // namespace tempera::ops
