// The CUDA attention kernels against the reference, on every case.
#include "tempera/kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/device_limits.h"
#include "tempera/kernels/cuda/testing.h"
#include "tempera/kernels/reference/agreement.h"

namespace tempera::kernels::cuda {
namespace {

// A problem whose tensors are on the device for the time of a call.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(Problem<T>& problem) : problem_(problem) {
    for (auto& [name, tensor] : problem.tensors()) mirror_.add(tensor.memory());
    for (auto& [name, tensor] : problem.reals()) mirror_.add(tensor.memory());
  }

  void forward(bool entropy = true) {
    const AttentionParams<T> p = params(problem_.params());
    const DeviceWorkspace workspace(attention_forward_workspace(p));
    AttentionOutputs<T> o = outputs();
    if (!entropy) o.entropy = {};
    attention_forward(p, o, workspace.data(), nullptr);
    finish(workspace, "the forward pass");
  }
  void backward() {
    const AttentionParams<T> p = params(problem_.params());
    const AttentionGradients<T> g = gradients();
    const DeviceWorkspace workspace(attention_backward_workspace(p, g));
    attention_backward(p, g, workspace.data(), nullptr);
    finish(workspace, "the backward pass");
  }
  void decode_rows() {
    DecodeParams<T> p = problem_.decode_params();
    const auto blocks =
        static_cast<size_t>(p.block_table ? p.attention.shape.batch * p.table_stride : 0);
    mirror_.add(std::span(p.lengths, static_cast<size_t>(p.attention.shape.batch)));
    mirror_.add(std::span(p.block_table, blocks));
    p.attention = params(p.attention);
    p.lengths = mirror_(p.lengths);
    p.block_table = mirror_(p.block_table);
    const DeviceWorkspace workspace(decode_workspace(p));
    decode(p, outputs(), workspace.data(), nullptr);
    finish(workspace, "decode");
  }

 private:
  AttentionParams<T> params(AttentionParams<T> p) {
    const auto ranges = static_cast<size_t>(p.shape.batch * p.shape.q_rows);
    for (const int32_t** range : {&p.mask.key_begin, &p.mask.key_end}) {
      if (!*range) continue;
      mirror_.add(std::span(*range, ranges));
      *range = ranges > 0 ? mirror_(*range) : nullptr;
    }
    p.q = mirror_(p.q);
    p.k = mirror_(p.k);
    p.v = mirror_(p.v);
    for (Scale<T>* scale : {&p.q_scale, &p.k_scale, &p.v_scale}) {
      scale->rows = mirror_(scale->rows);
      Recipe<T>& recipe = scale->recipe;
      recipe.source = mirror_(recipe.source);
      for (const float** numbers : {&recipe.w, &recipe.g, &recipe.c, &recipe.s, &recipe.log_n})
        *numbers = mirror_(*numbers);
    }
    p.bias = mirror_(p.bias);
    p.post = mirror_(p.post);
    p.sinks = mirror_(p.sinks);
    return p;
  }
  AttentionOutputs<T> outputs() {
    const AttentionOutputs<T> o = problem_.outputs();
    return {mirror_(o.out), mirror_(o.lse), mirror_(o.max), mirror_(o.entropy),
            mirror_(o.head_max)};
  }
  AttentionGradients<T> gradients() {
    AttentionGradients<T> g = problem_.gradients();
    g.out = mirror_(g.out);
    g.lse = mirror_(g.lse);
    g.d_out = mirror_(g.d_out);
    g.d_lse = mirror_(g.d_lse);
    g.q = mirror_(g.q);
    g.k = mirror_(g.k);
    g.v = mirror_(g.v);
    for (ScaleGradient<T>* scale : {&g.q_scale, &g.k_scale, &g.v_scale}) {
      scale->rows = mirror_(scale->rows);
      scale->source = mirror_(scale->source);
      for (float** numbers : {&scale->w, &scale->g, &scale->c, &scale->s})
        *numbers = mirror_(*numbers);
    }
    g.bias = mirror_(g.bias);
    g.post = mirror_(g.post);
    g.sinks = mirror_(g.sinks);
    return g;
  }
  void finish(const DeviceWorkspace& workspace, const char* what) {
    check(cudaDeviceSynchronize(), what);
    EXPECT_TRUE(workspace.guard_intact()) << what << " ran over its workspace";
    mirror_.download();
  }

  Problem<T>& problem_;
  DeviceMirror mirror_;
};

template <class T>
std::vector<Result> run(Problem<T>& problem) {
  problem.poison_results();
  OnDevice<T> device(problem);
  if (problem.settings().decodes()) {
    device.decode_rows();
    return problem.output_results();
  }
  device.forward();
  std::vector<Result> results = problem.output_results();
  device.backward();
  for (Result& gradient : problem.gradient_results()) results.push_back(std::move(gradient));
  return results;
}

// The naive arithmetic that the kernels are measured by: in bf16 with what tensor cores round, each
// result the worst of some draws. A head has few numbers, whose errors are sums: more draws there.
template <class T>
std::vector<Result> run_yardstick(const Case& c, const std::vector<Result>& exact) {
  const auto draw = [&](bool bf16, double grid) {
    Problem<float> problem(c, kPrecision<T>);
    return run_reference(problem, bf16, {grid});
  };
  if (!std::is_same_v<T, BFloat16>) return draw(false, 0);
  const bool sums = std::ranges::any_of(
      exact, [](const Result& result) { return is_gradient(result) && result.extent.rows == 1; });
  const int draws = sums ? 16 : 8;
  std::vector<Result> worst = draw(true, 1);
  for (int d = 1; d < draws; ++d) {
    std::vector<Result> next = draw(true, std::exp2(static_cast<double>(d) / draws));
    for (size_t r = 0; r < worst.size(); ++r)
      if (max_error(next[r], exact[r]) > max_error(worst[r], exact[r]))
        std::swap(worst[r], next[r]);
  }
  return worst;
}

template <class T>
void expect_right(const Case& c) {
  Problem<double> oracle(c, kPrecision<T>);
  const std::vector<Result> exact = run_reference(oracle, /*bf16_out=*/false);
  Problem<T> problem(c, kPrecision<T>);
  expect_agreement<T>(c, run(problem), run_yardstick<T>(c, exact), exact);
}

template <class T>
class CudaAttention : public testing::Test {};
TYPED_TEST_SUITE(CudaAttention, KernelTypes, TypeNames);

TYPED_TEST(CudaAttention, EveryCaseAgreesWithTheReference) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const Case& c : all_cases()) expect_right<T>(c);
}

// Blocks with several tiles, some seen wholly and some in part, of every size that has a kernel of
// its own.
TYPED_TEST(CudaAttention, ManyTilesAgreeWithTheReference) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  constexpr int64_t kRows = 170;
  for (const int64_t size : {64, 96, 128, 256}) {
    std::vector<Case> cases;
    const auto add = [&](const char* like, const char* what, auto change) {
      Case c = case_named(like);
      c.name = concat(what, "_", kRows, "_", size);
      c.shape.batch = 1;
      c.shape.q_rows = c.shape.kv_rows = kRows;
      c.shape.qk_size = c.shape.v_size = size;
      change(c);
      cases.push_back(c);
    };
    add("plain", "plain", [](Case&) {});
    add("everything", "everything", [](Case&) {});
    add("no_statistics", "both_ways", [](Case& c) { c.causal = false; });
    add("no_statistics", "window", [](Case& c) { c.window = 70; });
    add("no_statistics", "documents", [](Case& c) { c.documents = {{70, 30, 70}}; });
    for (const ScaleSigns signs : {ScaleSigns::kUsual, ScaleSigns::kZeros, ScaleSigns::kNegative})
      add("no_statistics", "q_rows", [signs](Case& c) {
        c.q_scale.rows = true;
        c.signs = signs;
      });
    for (const Case& c : cases) expect_right<T>(c);
  }
}

// Calls without an entropy have a kernel of their own, which gives all other statistics.
TYPED_TEST(CudaAttention, StatisticsNeedNoEntropy) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  const Case c = case_named("rows_257");
  Problem<double> oracle(c, kPrecision<T>);
  std::vector<Result> exact = run_reference(oracle, /*bf16_out=*/false);
  std::vector<Result> naive = run_yardstick<T>(c, exact);
  Problem<T> problem(c, kPrecision<T>);
  problem.poison_results();
  OnDevice<T>(problem).forward(/*entropy=*/false);
  std::vector<Result> actual = problem.output_results();
  const size_t count = actual.size();
  for (std::vector<Result>* results : {&actual, &exact, &naive}) {
    results->resize(count);
    std::erase_if(*results, [](const Result& result) { return result.name == "entropy"; });
  }
  ASSERT_EQ(actual.size(), 4U);  // out, lse, max, head_max
  expect_agreement<T>(c, actual, naive, exact);
}

TYPED_TEST(CudaAttention, TheSameInputsGiveTheSameBits) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const char* name : {"everything_longer", "rows_257", "group_8",
                           "documents_window_everything", "decode_5_paged_16_everything"}) {
    const Case c = case_named(name);
    Problem<T> problem(c, kPrecision<T>);
    const std::vector<Result> first = run(problem);
    expect_equal(c, first, run(problem));
  }
}

TYPED_TEST(CudaAttention, ALongCacheIsSplit) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  Case c = case_named("decode_2_paged_33_everything");
  c.shape.kv_rows = 3000;
  c.lengths = {3000, 700, 1};
  expect_right<T>(c);
}

TYPED_TEST(CudaAttention, ADecodeHasLongRows) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const char* name : {"decode_2", "decode_2_paged_33_everything"}) {
    Case c = case_named(name);
    c.shape.qk_size = c.shape.v_size = 256;
    expect_right<T>(c);
  }
}

TYPED_TEST(CudaAttention, TemperatureOneIsPlainAttentionBitForBit) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  Case plain = case_named("everything_longer");
  plain.q_scale = plain.k_scale = plain.v_scale = {};
  plain.wanted = WantedCase::kOperands;
  Problem<T> expected(plain, kPrecision<T>);
  const std::vector<Result> exact = run(expected);
  Case ones = plain;
  ones.q_scale.c = ones.k_scale.c = ones.v_scale.c = true;
  Problem<T> problem(ones, kPrecision<T>);
  for (auto& [name, tensor] : problem.reals())
    if (name.find("_scale.") != std::string::npos)
      tensor.fill(std::vector<double>(static_cast<size_t>(tensor.extent().count()), 1.0));
  expect_equal(ones, exact, run(problem));
}

TYPED_TEST(CudaAttention, BadCallsThrow) {
  using T = TypeParam;
  Problem<T> problem(case_named("everything"), kPrecision<T>);
  problem.params().dropout = 1;
  EXPECT_THROW(attention_forward(problem.params(), problem.outputs(), nullptr, nullptr), Error);
  EXPECT_THROW(attention_backward(problem.params(), problem.gradients(), nullptr, nullptr), Error);
  Problem<T> cache(case_named("decode_1"), kPrecision<T>);
  DecodeParams<T> params = cache.decode_params();
  params.lengths = nullptr;
  EXPECT_THROW(decode(params, cache.outputs(), nullptr, nullptr), Error);
}

Shape rows_of_size(int64_t size) {
  return {.batch = 1,
          .q_heads = 1,
          .kv_heads = 1,
          .q_rows = 9,
          .kv_rows = 9,
          .qk_size = size,
          .v_size = size};
}

// What GPUs have a block of: asked of no GPU here, so that it is tested without one.
TEST(CudaLimits, LongRowsOfFloatNeedALargeGpu) {
  const DeviceLimits ampere{"sm_80", true, 163 * 1024}, hopper{"sm_90", true, 227 * 1024};
  const DeviceLimits consumer{"sm_86, sm_89 and sm_120", true, 99 * 1024};
  for (const int64_t size : {8, 64, 72, 128, 136, 256}) {
    const Shape shape = rows_of_size(size);
    const int64_t exact = attention_shared_bytes<float>(shape);
    EXPECT_EQ(fits(exact, consumer), size <= 64) << size;
    EXPECT_TRUE(fits(exact, ampere) && fits(exact, hopper)) << size;
    EXPECT_TRUE(fits(attention_shared_bytes<BFloat16>(shape), consumer)) << size;
    EXPECT_TRUE(fits(decode_shared_bytes<float>(shape), consumer)) << size;
    EXPECT_TRUE(fits(decode_shared_bytes<BFloat16>(shape), consumer)) << size;
  }
  EXPECT_FALSE(fits(0, {"older", false, 227 * 1024})) << "without code nothing fits";
}

TEST(CudaLimits, AreTheDriversOwn) {
  TEMPERA_NEEDS_GPU();
  const DeviceLimits limits = device_limits(0);
  EXPECT_TRUE(limits.has_code) << limits.name;
  EXPECT_GE(limits.shared_bytes, 48 * 1024);
  EXPECT_FALSE(device_limits(99).has_code);
}

}  // namespace
}  // namespace tempera::kernels::cuda
