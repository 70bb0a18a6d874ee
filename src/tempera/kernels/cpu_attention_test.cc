// The fast CPU kernels against the reference, on every case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/parallel.h"
#include "tempera/kernels/reference/agreement.h"

namespace tempera::kernels {
namespace {

// Exactly as large as asked for, full of NaNs: kernels must neither expect zeros nor run over its
// end.
class Workspace {
 public:
  explicit Workspace(size_t size) : size_(size), memory_(make(size + kGuard)) {
    std::memset(memory_.get(), 0xFF, size + kGuard);
  }
  void* data() { return memory_.get(); }
  bool guard_intact() const {
    return std::all_of(memory_.get() + size_, memory_.get() + size_ + kGuard,
                       [](unsigned char byte) { return byte == 0xFF; });
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(unsigned char* memory) const { ::operator delete[](memory, kAlignment); }
  };
  using Memory = std::unique_ptr<unsigned char[], Free>;
  static Memory make(size_t size) {
    return Memory(static_cast<unsigned char*>(::operator new[](size, kAlignment)));
  }

  size_t size_;
  Memory memory_;
};

template <class T>
void run_forward(Problem<T>& problem, Parallel& parallel) {
  Workspace workspace(attention_forward_workspace(problem.params(), parallel.workers()));
  attention_forward(problem.params(), problem.outputs(), parallel, workspace.data());
  EXPECT_TRUE(workspace.guard_intact()) << "the forward pass ran over its workspace";
}

template <class T>
void run_backward(Problem<T>& problem, Parallel& parallel) {
  const AttentionGradients<T> gradients = problem.gradients();
  Workspace workspace(
      attention_backward_workspace(problem.params(), gradients, parallel.workers()));
  attention_backward(problem.params(), gradients, parallel, workspace.data());
  EXPECT_TRUE(workspace.guard_intact()) << "the backward pass ran over its workspace";
}

template <class T>
void run_decode(Problem<T>& problem, Parallel& parallel) {
  const DecodeParams<T> params = problem.decode_params();
  Workspace workspace(decode_workspace(params, parallel.workers()));
  decode(params, problem.outputs(), parallel, workspace.data());
  EXPECT_TRUE(workspace.guard_intact()) << "decode ran over its workspace";
}

template <class T>
std::vector<Result> run(Problem<T>& problem, Parallel& parallel) {
  problem.poison_results();
  if (problem.settings().decodes()) {
    run_decode(problem, parallel);
    return problem.output_results();
  }
  run_forward(problem, parallel);
  std::vector<Result> results = problem.output_results();
  run_backward(problem, parallel);
  for (Result& gradient : problem.gradient_results()) results.push_back(std::move(gradient));
  return results;
}

template <class T>
class CpuAttention : public testing::Test {};

using Types = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CpuAttention, Types, TypeNames);

TYPED_TEST(CpuAttention, EveryCaseAgreesWithTheReferenceOnAnyNumberOfWorkers) {
  using T = TypeParam;
  Serial serial;
  const auto two = make_thread_pool(2);
  const auto three = make_thread_pool(3);
  for (const Case& c : all_cases()) {
    Problem<double> oracle(c, kPrecision<T>);
    Problem<float> yardstick(c, kPrecision<T>);
    const std::vector<Result> exact = run_reference(oracle, /*bf16_out=*/false);
    const std::vector<Result> naive = run_reference(yardstick, std::is_same_v<T, BFloat16>);
    Problem<T> problem(c, kPrecision<T>);
    for (Parallel* parallel : {static_cast<Parallel*>(&serial), two.get(), three.get()}) {
      SCOPED_TRACE(concat(parallel->workers(), " workers"));
      expect_agreement<T>(c, run(problem, *parallel), naive, exact);
    }
  }
}

TYPED_TEST(CpuAttention, TheSameWorkersGiveTheSameBits) {
  using T = TypeParam;
  const auto two = make_thread_pool(2);
  const auto three = make_thread_pool(3);
  for (const Case& c : all_cases()) {
    Problem<T> problem(c, kPrecision<T>);
    for (Parallel* parallel : {two.get(), three.get()}) {
      const std::vector<Result> first = run(problem, *parallel);
      expect_equal(c, first, run(problem, *parallel));
    }
  }
}

TYPED_TEST(CpuAttention, TemperatureOneIsPlainAttentionBitForBit) {
  using T = TypeParam;
  Serial serial;
  Case plain = case_named("everything_longer");
  plain.q_scale = plain.k_scale = plain.v_scale = {};
  plain.wanted = WantedCase::kOperands;
  Problem<T> expected(plain, kPrecision<T>);
  const std::vector<Result> exact = run(expected, serial);
  for (const bool recipe : {false, true}) {
    Case ones = plain;
    ones.q_scale.rows = ones.k_scale.rows = ones.v_scale.rows = !recipe;
    ones.q_scale.c = ones.k_scale.c = ones.v_scale.c = recipe;
    Problem<T> problem(ones, kPrecision<T>);
    for (auto& [name, tensor] : problem.reals())
      if (name.find("_scale.") != std::string::npos)
        tensor.fill(std::vector<double>(static_cast<size_t>(tensor.extent().count()), 1.0));
    expect_equal(ones, exact, run(problem, serial));
  }
}

TYPED_TEST(CpuAttention, ALoudOtherRowMovesNoBitOfAnEarlierRow) {
  using T = TypeParam;
  Serial serial;
  for (const char* name : {"everything_longer", "rows_257", "causal_documents", "documents"}) {
    const Case c = case_named(name);
    Problem<T> problem(c, kPrecision<T>);
    run_forward(problem, serial);
    const std::vector<double> before = problem.tensors().at("out").values();
    // Rows from the cut on change. It is the beginning of a document, so that earlier rows see none
    // of them even without causality.
    const int64_t cut = c.documents.empty() ? c.shape.q_rows / 2 : 33;
    for (const char* operand : {"q", "k", "v"}) {
      Tensor<T>& tensor = problem.tensors().at(operand);
      const Extent& e = tensor.extent();
      for (int64_t i = 0; i < e.count(); ++i)
        if (i / e.size % e.rows >= cut) tensor.at(i) = from_double<T>(50 + to_double(tensor.at(i)));
    }
    run_forward(problem, serial);
    const std::vector<double> after = problem.tensors().at("out").values();
    const Extent& e = problem.tensors().at("out").extent();
    const int64_t sequence = e.count() / e.batch;
    bool moved = false;
    for (int64_t i = 0; i < sequence; ++i) {  // sequence 0 has the documents
      const auto at = static_cast<size_t>(i);
      if (i / e.size % e.rows < cut)
        ASSERT_EQ(before[at], after[at]) << name << ", row " << i / e.size % e.rows;
      else
        moved = moved || before[at] != after[at];
    }
    EXPECT_TRUE(moved) << name;
  }
}

template <class T>
void fill_row(Tensor<T>& tensor, int64_t head, int64_t row, double value) {
  const Extent& e = tensor.extent();
  for (int64_t c = 0; c < e.size; ++c)
    tensor.at((head * e.rows + row) * e.size + c) = from_double<T>(value);
}

// Rows that see a NaN are NaNs, whatever else they see and wherever it stands; others are not,
// unless it is a value, which a weight of 0 does not hide.
TYPED_TEST(CpuAttention, ANanShowsInTheRowsThatSeeIt) {
  using T = TypeParam;
  Serial serial;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* name : {"rows_1", "rows_33", "rows_257", "cap", "bias", "causal_window_3"})
    for (const auto& [operand, row] :
         {std::pair("q", 0), {"q", 20}, {"k", 0}, {"k", 1}, {"k", 20}, {"v", 5}}) {
      const Case c = case_named(name);
      if (row >= c.shape.q_rows) continue;
      Problem<T> problem(c, kPrecision<T>);
      fill_row(problem.tensors().at(operand), /*head=*/0, row, nan);
      run_forward(problem, serial);
      const std::vector<double> out = problem.tensors().at("out").values();
      for (int64_t i = 0; i < c.shape.q_rows; ++i) {
        const bool sees =
            *operand == 'q' ? i == row : i >= row && (c.window == 0 || i - row < c.window);
        if (*operand == 'v' && !sees) continue;
        ASSERT_EQ(std::isnan(out[static_cast<size_t>(i * c.shape.v_size)]), sees)
            << name << ": " << operand << "[" << row << "] seen by row " << i;
      }
    }
}

// The bias hides every key but one, which is a NaN.
TYPED_TEST(CpuAttention, ANanShowsBesideKeysThatTheBiasHides) {
  using T = TypeParam;
  Serial serial;
  for (const int64_t key : {0, 7, 16, 32}) {
    Problem<T> problem(case_named("bias"), kPrecision<T>);
    auto& bias = problem.reals().at("bias");
    for (int64_t i = 0; i < bias.extent().count(); ++i)
      if (i % bias.extent().size != key) bias.at(i) = -std::numeric_limits<float>::infinity();
    fill_row(problem.tensors().at("k"), /*head=*/0, key, std::numeric_limits<double>::quiet_NaN());
    run_forward(problem, serial);
    const Extent& e = problem.tensors().at("out").extent();
    const std::vector<double> out = problem.tensors().at("out").values();
    for (int64_t i = 0; i < e.rows; ++i)
      ASSERT_EQ(std::isnan(out[static_cast<size_t>(i * e.size)]), i >= key) << key << ", row " << i;
  }
}

TYPED_TEST(CpuAttention, ANanShowsInDecoding) {
  using T = TypeParam;
  const auto two = make_thread_pool(2);
  Case c = case_named("decode_5");
  c.shape.batch = 1;
  c.lengths = {200};
  for (const double cap : {0.0, 2.0}) {
    c.cap = cap;
    Problem<T> problem(c, kPrecision<T>);
    fill_row(problem.tensors().at("q"), /*head=*/0, 3, std::numeric_limits<double>::quiet_NaN());
    run_decode(problem, *two);
    const std::vector<double> out = problem.tensors().at("out").values();
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(std::isnan(out[static_cast<size_t>(i * c.shape.v_size)]), i == 3) << i;
  }
}

TYPED_TEST(CpuAttention, DecodeEqualsTheLastRowsOfTheForwardPass) {
  using T = TypeParam;
  const auto two = make_thread_pool(2);
  Case c = case_named("decode_5_everything");
  c.shape.batch = 1;
  c.lengths = {200};
  c.bias = BiasCase::kHeads;
  Problem<T> decoded(c, kPrecision<T>);
  const std::vector<Result> actual = run(decoded, *two);
  Problem<T> whole(c, kPrecision<T>);
  whole.params().mask.query_offset = 195;
  run_forward(whole, *two);
  const std::vector<Result> expected = whole.output_results();
  const double rounding = std::is_same_v<T, BFloat16> ? 1.0 / 128 : 1e-5;
  for (size_t r = 0; r < expected.size(); ++r)
    for (size_t i = 0; i < expected[r].values.size(); ++i)
      ASSERT_NEAR(actual[r].values[i], expected[r].values[i],
                  rounding * (1 + std::abs(expected[r].values[i])))
          << actual[r].place(i);
}

// A cache of keys or values of fewer bits, where the problem's lie; the problem gets what is left
// of its numbers.
template <class C, class T>
Tensor<C> narrowed(Problem<T>& problem, const char* name, double factor) {
  Tensor<T>& wide = problem.tensors().at(name);
  Tensor<C> narrow(wide.extent(), problem.settings().layout, problem.settings().offset);
  for (int64_t i = 0; i < wide.extent().count(); ++i) {
    const double value = to_double(wide.at(i)) / factor;
    if (std::isnan(value)) continue;  // not in use
    narrow.at(i) = from_double<C>(value);
    wide.at(i) = from_double<T>(to_double(narrow.at(i)));
  }
  return narrow;
}

// Whole numbers up to about 100; the logits stay as they were.
template <class C>
constexpr double kStep = std::is_same_v<C, int8_t> ? 1.0 / 32 : 1;

template <class C, class T>
struct Narrowed {
  explicit Narrowed(Problem<T>& problem)
      : k(narrowed<C>(problem, "k", kStep<C>)), v(narrowed<C>(problem, "v", kStep<C>)) {
    problem.params().scale *= static_cast<Real<T>>(kStep<C>);
  }
  Tensor<C> k, v;
};

template <class C, class T>
std::vector<Result> run_narrow(Problem<T>& problem, Narrowed<C, T>& cache, Parallel& parallel) {
  problem.poison_results();
  const DecodeParams<T> wide = problem.decode_params();
  const AttentionParams<T>& a = wide.attention;
  const DecodeParams<T, C> params{
      {a.shape, a.q, cache.k.input(), cache.v.input(), a.mask, a.scale, a.q_scale, a.k_scale,
       a.v_scale, a.bias, a.cap, a.post, a.sinks, a.dropout, a.seed},
      wide.lengths,
      wide.block_table,
      wide.table_stride,
      wide.block_size};
  Workspace workspace(decode_workspace(params, parallel.workers()));
  decode(params, problem.outputs(), parallel, workspace.data());
  EXPECT_TRUE(workspace.guard_intact()) << "decode ran over its workspace";
  return problem.output_results();
}

template <class T, class C>
struct Pair {
  using Query = T;
  using Cached = C;
};
template <class P>
class CpuNarrowCache : public testing::Test {};
struct PairNames {
  template <class P>
  static std::string GetName(int) {
    return concat(std::is_same_v<typename P::Query, float> ? "float" : "bf16", "_",
                  std::is_same_v<typename P::Cached, int8_t> ? "int8" : "bf16");
  }
};
using Pairs = testing::Types<Pair<float, BFloat16>, Pair<float, int8_t>, Pair<BFloat16, int8_t>>;
TYPED_TEST_SUITE(CpuNarrowCache, Pairs, PairNames);

TYPED_TEST(CpuNarrowCache, EveryCaseAgreesWithTheReferenceOnItsRoundedKeysAndValues) {
  using T = typename TypeParam::Query;
  using C = typename TypeParam::Cached;
  Serial serial;
  const auto three = make_thread_pool(3);
  for (const Case& c : decode_cases()) {
    Problem<double> oracle(c, kPrecision<T>);
    Problem<float> yardstick(c, kPrecision<T>);
    Problem<T> problem(c, kPrecision<T>);
    const Narrowed<C, double> exact_cache(oracle);
    const Narrowed<C, float> naive_cache(yardstick);
    Narrowed<C, T> cache(problem);
    const std::vector<Result> exact = run_reference(oracle, /*bf16_out=*/false);
    const std::vector<Result> naive = run_reference(yardstick, std::is_same_v<T, BFloat16>);
    for (Parallel* parallel : {static_cast<Parallel*>(&serial), three.get()}) {
      SCOPED_TRACE(concat(parallel->workers(), " workers"));
      const std::vector<Result> first = run_narrow(problem, cache, *parallel);
      expect_agreement<T>(c, first, naive, exact);
      expect_equal(c, first, run_narrow(problem, cache, *parallel));
    }
  }
}

TYPED_TEST(CpuAttention, BadCallsThrow) {
  using T = TypeParam;
  Serial serial;
  Problem<T> problem(case_named("everything"), kPrecision<T>);
  Workspace workspace(attention_forward_workspace(problem.params(), 1));
  problem.params().dropout = 1;
  EXPECT_THROW(attention_forward(problem.params(), problem.outputs(), serial, workspace.data()),
               Error);
  EXPECT_THROW(attention_backward(problem.params(), problem.gradients(), serial, workspace.data()),
               Error);
  Problem<T> cache(case_named("decode_1"), kPrecision<T>);
  DecodeParams<T> params = cache.decode_params();
  params.lengths = nullptr;
  EXPECT_THROW(decode(params, cache.outputs(), serial, workspace.data()), Error);
}

}  // namespace
}  // namespace tempera::kernels
