// The fast CPU kernels against the reference, on every case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/parallel.h"
#include "tempera/kernels/problem.h"
#include "tempera/kernels/reference.h"

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

// bf16_out: the backward pass reads, and the results show, what is left of T's numbers in bf16.
template <class R>
std::vector<Result> run_reference(Problem<R>& problem, bool bf16_out) {
  const auto round = [bf16_out](std::vector<Result> results) {
    for (Result& result : results)
      if (bf16_out && !result.real)
        for (double& value : result.values) value = to_double(from_double<BFloat16>(value));
    return results;
  };
  if (problem.settings().decodes()) {
    reference::decode(problem.decode_params(), problem.outputs());
    return round(problem.output_results());
  }
  reference::forward(problem.params(), problem.outputs());
  std::vector<Result> results = round(problem.output_results());
  problem.tensors().at("out").fill(results[0].values);
  reference::backward(problem.params(), problem.gradients());
  for (Result& gradient : round(problem.gradient_results())) results.push_back(std::move(gradient));
  return results;
}

template <class T>
constexpr Precision kPrecision =
    std::is_same_v<T, BFloat16> ? Precision::kBFloat16 : Precision::kFloat;

bool is_gradient(const Result& result) { return result.name.starts_with("d_"); }

double max_error(const Result& actual, const Result& exact) {
  double error = 0;
  for (size_t i = 0; i < exact.values.size(); ++i)
    if (std::isfinite(exact.values[i]))
      error = std::max(error, std::abs(actual.values[i] - exact.values[i]));
  return error;
}

double max_size(const Result& exact) {
  double size = 0;
  for (const double value : exact.values)
    if (std::isfinite(value)) size = std::max(size, std::abs(value));
  return size;
}

// What a fast kernel may be off: twice the largest error of the naive arithmetic in the same
// precision, as a rule of thumb that needs no analysis of each tensor, and a small constant for
// tensors on which the naive one happens to be nearly exact. Inputs are of the order of 1 (queries:
// of the case's magnitude), and so are the terms that cancel in gradients, hence its absolute part;
// logits of size m carry an error of m * 2^-24, a relative one of probabilities.
template <class T>
double tolerance(const Case& c, const Result& naive, const Result& exact) {
  constexpr double kSmall = 5e-6;
  constexpr double kUnit = 1.0 / (1 << 24);
  const bool rounded = std::is_same_v<T, BFloat16> && (!exact.real || is_gradient(exact));
  const double small = rounded ? 1.0 / 1024 : kSmall;
  // The gradient of a head's number is a sum over rows of dot products, whose errors add up like a
  // random walk.
  const bool summed = is_gradient(exact) && exact.extent.rows == 1;
  const double terms =
      summed ? static_cast<double>(c.shape.batch * std::max(c.shape.q_rows, c.shape.kv_rows) *
                                   std::max(c.shape.qk_size, c.shape.v_size))
             : 1;
  return 2 * max_error(naive, exact) +
         small * (c.magnitude * std::sqrt(std::max(terms, 1.0)) + max_size(exact)) +
         kUnit * c.magnitude * max_size(exact);
}

template <class T>
void expect_agreement(const Case& c, const std::vector<Result>& actual,
                      const std::vector<Result>& naive, const std::vector<Result>& exact) {
  ASSERT_EQ(actual.size(), exact.size());
  for (size_t r = 0; r < exact.size(); ++r) {
    const double bound = tolerance<T>(c, naive[r], exact[r]);
    EXPECT_TRUE(actual[r].guards_intact) << c.name << ": wrote beside " << actual[r].name;
    int reported = 0;
    for (size_t i = 0; i < exact[r].values.size() && reported < 3; ++i) {
      const double value = actual[r].values[i];
      const double expected = exact[r].values[i];
      const bool close =
          std::isfinite(expected) ? std::abs(value - expected) <= bound : value == expected;
      if (close) continue;  // a NaN is never close
      ++reported;
      ADD_FAILURE() << c.name << ": " << actual[r].place(i) << " is " << value << ", expected "
                    << expected << " within " << bound;
    }
  }
}

void expect_equal(const Case& c, const std::vector<Result>& x, const std::vector<Result>& y) {
  for (size_t r = 0; r < x.size(); ++r)
    for (size_t i = 0; i < x[r].values.size(); ++i)
      ASSERT_EQ(x[r].values[i], y[r].values[i]) << c.name << ": " << x[r].place(i);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = attention_cases();
  cases.insert(cases.end(), decode_cases().begin(), decode_cases().end());
  return cases;
}

Case case_named(const std::string& name) {
  for (const Case& c : all_cases())
    if (c.name == name) return c;
  throw Error(concat("there is no case '", name, "'"));
}

template <class T>
class CpuAttention : public testing::Test {};

struct TypeNames {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float> ? "float" : "bf16";
  }
};

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
