// The reference against closed forms, independent formulas and finite differences.
#include "tempera/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/kernels/reference/attention.h"
#include "tempera/kernels/reference/problem.h"

namespace tempera::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sanitizers watch each call, at ten times its cost: they see every case, with fewer numbers of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr int64_t kDropoutRows = kSanitized ? 32 : 8;

Case small_case(int64_t rows) {
  Case c;
  c.name = "small";
  c.shape = {.batch = 1,
             .q_heads = 1,
             .kv_heads = 1,
             .q_rows = rows,
             .kv_rows = rows,
             .qk_size = 4,
             .v_size = 3};
  c.causal = true;
  return c;
}

std::vector<double> forward_out(Problem<double>& problem) {
  reference::forward(problem.params(), problem.outputs());
  return problem.tensors().at("out").values();
}

// The interval rule of the masks, written down pair by pair instead.
class PairMask {
 public:
  explicit PairMask(const Case& c)
      : c_(c), self_(c.key_documents.empty() && c.shape.q_rows == c.shape.kv_rows) {}

  bool sees(int64_t b, int64_t i, int64_t j) const {
    const int64_t distance = c_.query_offset + i - j;
    if (c_.causal && distance < 0) return false;
    if (c_.window > 0 && std::abs(distance) >= c_.window) return false;
    if (!c_.documents.empty()) {
      const auto& keys = self_ ? c_.documents : c_.key_documents;
      if (document(c_.documents, b, i) != document(keys, b, j)) return false;
    }
    if (c_.content.empty()) return true;
    return inside(b, j) && (!self_ || inside(b, i));
  }

 private:
  static size_t document(const std::vector<std::vector<int64_t>>& documents, int64_t b,
                         int64_t row) {
    const std::vector<int64_t>& lengths = documents[static_cast<size_t>(b)];
    size_t d = 0;
    while (row >= lengths[d]) row -= lengths[d++];
    return d;
  }
  bool inside(int64_t b, int64_t row) const {
    const KeyRange& range = c_.content[static_cast<size_t>(b)];
    return row >= range.begin && row < range.end;
  }

  const Case& c_;
  bool self_;
};

double recipe_number(const Recipe<double>& r, int64_t rows, int64_t b, int64_t h, int64_t row) {
  if (!r.active()) return 1;
  double sum = r.c ? r.c[h] : 0;
  if (r.g) sum += r.g[h] * r.log_n[b * rows + row];
  if (r.w) {
    double f = 0;
    for (int64_t x = 0; x < r.size; ++x) {
      const double value = r.source.at(b, h, row)[x];
      f += r.w[h * r.size + x] * 0.5 * value * (1 + std::erf(value / std::sqrt(2.0)));
    }
    sum += std::tanh(f);
  }
  return (r.s ? r.s[h] : 1) * sum;
}

double scale_number(const Scale<double>& s, int64_t rows, int64_t b, int64_t h, int64_t row) {
  return (s.rows ? *s.rows.at(b, h, row) : 1) * recipe_number(s.recipe, rows, b, h, row);
}

struct Expected {
  std::vector<double> out;
  double lse, max, entropy;
};

// One row with the mask as -inf on a full row of logits and the sink as one more column.
Expected expected_row(const AttentionParams<double>& p, const PairMask& mask,
                      const std::vector<double>& keep, int64_t b, int64_t h, int64_t i) {
  const Shape& s = p.shape;
  const int64_t kv = h * s.kv_heads / s.q_heads;
  std::vector<double> logits;
  for (int64_t j = 0; j < s.kv_rows; ++j) {
    double x = 0;
    for (int64_t c = 0; c < s.qk_size; ++c) x += p.q.at(b, h, i)[c] * p.k.at(b, kv, j)[c];
    x *= p.scale * scale_number(p.q_scale, s.q_rows, b, h, i) *
         scale_number(p.k_scale, s.kv_rows, b, kv, j);
    if (p.bias) x += p.bias.at(b, h, i)[j];
    if (p.cap > 0) x = p.cap * std::tanh(x / p.cap);
    if (p.post) x *= *p.post.at(b, h, i);
    logits.push_back(mask.sees(b, i, j) ? x : -kInfinity);
  }
  Expected e{std::vector<double>(static_cast<size_t>(s.v_size)), -kInfinity, -kInfinity, 0};
  for (const double x : logits) e.max = std::max(e.max, x);
  if (e.max == -kInfinity) return e;
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - e.max);
  e.lse = std::log(sum) + e.max;
  const double sink = p.sinks ? std::exp(p.sinks[h] - e.max) : 0;
  for (int64_t j = 0; j < s.kv_rows; ++j) {
    const double weight = std::exp(logits[static_cast<size_t>(j)] - e.max);
    if (weight > 0) e.entropy -= weight / sum * std::log(weight / sum);
    if (weight == 0) continue;
    const double a_v = scale_number(p.v_scale, s.kv_rows, b, kv, j);
    for (int64_t c = 0; c < s.v_size; ++c)
      e.out[static_cast<size_t>(c)] +=
          keep[static_cast<size_t>(j)] * weight / (sum + sink) * a_v * p.v.at(b, kv, j)[c];
  }
  return e;
}

// Which keys a row keeps, seen from outside: attention whose values are the unit vectors shows the
// probabilities.
std::vector<double> kept_keys(const AttentionParams<double>& params, int64_t b, int64_t h,
                              int64_t i) {
  AttentionParams<double> p = params;
  const Shape& s = p.shape;
  p.q_scale = {}, p.k_scale = {}, p.v_scale = {}, p.mask = {}, p.bias = {}, p.post = {};
  p.sinks = nullptr, p.cap = 0, p.scale = 0;
  p.shape.v_size = s.kv_rows;
  std::vector<double> units(static_cast<size_t>(s.kv_rows * s.kv_rows));
  for (int64_t j = 0; j < s.kv_rows; ++j) units[static_cast<size_t>(j * s.kv_rows + j)] = 1;
  p.v = {units.data(), 0, 0, s.kv_rows};
  std::vector<double> out(static_cast<size_t>(s.batch * s.q_heads * s.q_rows * s.kv_rows));
  const Rows<double> rows{out.data(), s.q_heads * s.q_rows * s.kv_rows, s.q_rows * s.kv_rows,
                          s.kv_rows};
  AttentionOutputs<double> outputs;
  outputs.out = rows;
  reference::forward(p, outputs);
  std::vector<double> kept;
  for (int64_t j = 0; j < s.kv_rows; ++j)
    kept.push_back(rows.at(b, h, i)[j] * static_cast<double>(s.kv_rows));
  return kept;
}

void expect_close(double actual, double expected, const Result& result, size_t at,
                  const std::string& name) {
  if (expected == -kInfinity)
    EXPECT_EQ(actual, expected) << name << ": " << result.place(at);
  else
    EXPECT_NEAR(actual, expected, 1e-9 * (1 + std::abs(expected)))
        << name << ": " << result.place(at);
}

TEST(Reference, AgreesWithFormulasPairByPair) {
  for (const Case& c : attention_cases()) {
    if (c.shape.q_rows * c.shape.kv_rows * c.shape.qk_size > 80 * 80 * 24) continue;
    SCOPED_TRACE(c.name);
    Problem<double> problem(c, Precision::kDouble);
    reference::forward(problem.params(), problem.outputs());
    const std::vector<Result> results = problem.output_results();
    const PairMask mask(c);
    const Shape& s = c.shape;
    std::vector<double> head_max(static_cast<size_t>(s.q_heads), -kInfinity);
    size_t row = 0;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.q_heads; ++h)
        for (int64_t i = 0; i < s.q_rows; ++i, ++row) {
          std::vector<double> keep(static_cast<size_t>(s.kv_rows), 1.0);
          if (c.dropout > 0 && i % kDropoutRows != 1) continue;  // a whole attention each
          if (c.dropout > 0) keep = kept_keys(problem.params(), b, h, i);
          const Expected e = expected_row(problem.params(), mask, keep, b, h, i);
          for (size_t x = 0; x < e.out.size(); ++x) {
            const size_t at = row * e.out.size() + x;
            expect_close(results[0].values[at], e.out[x], results[0], at, c.name);
          }
          expect_close(results[1].values[row], e.lse, results[1], row, c.name);
          double& highest = head_max[static_cast<size_t>(h)];
          highest = std::max(highest, e.max);
          if (!c.statistics) continue;
          expect_close(results[2].values[row], e.max, results[2], row, c.name);
          expect_close(results[3].values[row], e.entropy, results[3], row, c.name);
        }
    for (const Result& result : results) EXPECT_TRUE(result.guards_intact) << result.name;
    if (!c.statistics || c.dropout > 0) continue;
    for (size_t h = 0; h < head_max.size(); ++h)
      expect_close(results[4].values[h], head_max[h], results[4], h, c.name);
  }
}

double loss(Problem<double>& problem) {
  reference::forward(problem.params(), problem.outputs());
  double sum = 0;
  const std::vector<double> out = problem.tensors().at("out").values();
  const std::vector<double> d_out = problem.tensors().at("d_out").values();
  for (size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
  if (!problem.settings().d_lse) return sum;
  const std::vector<double> lse = problem.reals().at("lse").values();
  const std::vector<double> d_lse = problem.reals().at("d_lse").values();
  for (size_t i = 0; i < lse.size(); ++i)
    if (lse[i] != -kInfinity) sum += lse[i] * d_lse[i];
  return sum;
}

double finite_difference(Problem<double>& problem, double& element) {
  constexpr double kStep = 1e-5;
  const double before = element;
  element = before + kStep;
  const double above = loss(problem);
  element = before - kStep;
  const double below = loss(problem);
  element = before;
  return (above - below) / (2 * kStep);
}

TEST(Reference, GradientsAgreeWithFiniteDifferences) {
  constexpr int64_t kSamples = kSanitized ? 1 : 5;  // of every tensor
  for (const Case& c : attention_cases()) {
    if (c.magnitude != 1 || c.shape.q_rows * c.shape.kv_rows * c.shape.qk_size > 50 * 50 * 24)
      continue;
    SCOPED_TRACE(c.name);
    Problem<double> problem(c, Precision::kDouble);
    reference::forward(problem.params(), problem.outputs());
    reference::backward(problem.params(), problem.gradients());
    for (const Result& gradient : problem.gradient_results()) {
      EXPECT_TRUE(gradient.guards_intact) << gradient.name;
      for (const double value : gradient.values) ASSERT_TRUE(std::isfinite(value)) << gradient.name;
      const std::string name = gradient.name.substr(2);
      auto& tensors = problem.tensors().contains(name) ? problem.tensors() : problem.reals();
      Tensor<double>& input = tensors.at(name);
      const int64_t count = input.extent().count();
      ASSERT_EQ(count, static_cast<int64_t>(gradient.values.size()));
      for (int64_t sample = 0; sample < std::min(kSamples, count); ++sample) {
        const int64_t at = (sample * 7919 + count / 2) % count;
        const double expected = finite_difference(problem, input.at(at));
        const double actual = gradient.values[static_cast<size_t>(at)];
        EXPECT_NEAR(actual, expected, 2e-6 * (1 + std::abs(expected)))
            << gradient.place(static_cast<size_t>(at));
      }
    }
  }
}

TEST(Reference, OneQueryTwoKeysByHand) {
  Problem<double> problem(small_case(2), Precision::kDouble);
  AttentionParams<double>& p = problem.params();
  const double q[] = {1, 2, 0, 0};
  const double k[] = {3, 0, 0, 0, 0, 1, 0, 0};
  const double v[] = {1, 0, 0, 0, 1, 0};
  p.shape.q_rows = 1;
  p.mask.query_offset = 1;
  p.q.data = q, p.k.data = k, p.v.data = v;
  p.scale = 0.5;  // logits 1.5 and 1
  reference::forward(p, problem.outputs());
  const double share = 1 / (1 + std::exp(-0.5));
  EXPECT_NEAR(problem.outputs().out.data[0], share, 1e-15);
  EXPECT_NEAR(problem.outputs().out.data[1], 1 - share, 1e-15);
  EXPECT_NEAR(problem.outputs().lse.data[0], std::log(std::exp(1.5) + std::exp(1.0)), 1e-15);
}

TEST(Reference, TemperatureOneIsPlainAttentionAndOthersAreNot) {
  Case c = small_case(6);
  Problem<double> plain(c, Precision::kDouble);
  const std::vector<double> expected = forward_out(plain);
  c.q_scale.rows = c.k_scale.rows = c.v_scale.rows = true;
  c.q_scale.c = c.k_scale.c = c.v_scale.c = true;
  Problem<double> scaled(c, Precision::kDouble);
  for (auto& [name, tensor] : scaled.reals())
    if (name.ends_with("_scale.rows") || name.ends_with("_scale.c"))
      if (!name.starts_with("d_"))
        tensor.fill(std::vector<double>(static_cast<size_t>(tensor.extent().count()), 1.0));
  EXPECT_EQ(forward_out(scaled), expected);

  for (const char* name : {"q_scale.rows", "k_scale.rows", "q_scale.c", "k_scale.c"}) {
    scaled.reals().at(name).at(0) = 2;
    for (int64_t i = 0; i < scaled.reals().at(name).extent().count(); ++i)
      scaled.reals().at(name).at(i) = 2;
    const std::vector<double> out = forward_out(scaled);
    // Row 0 sees one key and hides every temperature; the later rows show it.
    for (size_t x = 0; x < 3; ++x) EXPECT_EQ(out[x], expected[x]) << name;
    for (size_t x = 3; x < out.size(); ++x) EXPECT_NE(out[x], expected[x]) << name;
    for (int64_t i = 0; i < scaled.reals().at(name).extent().count(); ++i)
      scaled.reals().at(name).at(i) = 1;
  }
}

TEST(Reference, AScaleIsTheSameAsScaledOperands) {
  Case c = small_case(9);
  c.q_scale.rows = c.k_scale.rows = c.v_scale.rows = true;
  Problem<double> scaled(c, Precision::kDouble);
  const std::vector<double> expected = forward_out(scaled);
  Problem<double> folded(c, Precision::kDouble);
  for (const char* name : {"q", "k", "v"}) {
    Tensor<double>& operand = folded.tensors().at(name);
    for (int64_t i = 0; i < operand.extent().count(); ++i)
      operand.at(i) *= folded.reals().at(concat(name, "_scale.rows")).at(i / operand.extent().size);
  }
  AttentionParams<double>& p = folded.params();
  p.q_scale = {}, p.k_scale = {}, p.v_scale = {};
  const std::vector<double> out = forward_out(folded);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-13);
}

TEST(Reference, TemperatureBeforeTheCapIsNotTemperatureAfterIt) {
  Case c = small_case(5);
  c.cap = 1;
  c.q_scale.rows = true;
  c.post = true;
  Problem<double> problem(c, Precision::kDouble);
  const auto set = [&](const char* name, double value) {
    problem.reals().at(name).fill(std::vector<double>(5, value));
  };
  set("q_scale.rows", 3), set("post", 1);
  const std::vector<double> before = forward_out(problem);
  set("q_scale.rows", 1), set("post", 3);
  const std::vector<double> after = forward_out(problem);
  EXPECT_GT(std::abs(before.back() - after.back()), 1e-3);
}

TEST(Reference, TheFutureMovesNothing) {
  for (const char* feature : {"everything", "plain"}) {
    const Case* found = nullptr;
    for (const Case& c : attention_cases())
      if (c.name == feature) found = &c;
    ASSERT_NE(found, nullptr);
    Problem<double> problem(*found, Precision::kDouble);
    const std::vector<double> before = forward_out(problem);
    const int64_t cut = found->shape.q_rows / 2;
    for (const char* name : {"q", "k", "v"}) {
      Tensor<double>& operand = problem.tensors().at(name);
      for (int64_t i = 0; i < operand.extent().count(); ++i)
        if (i / operand.extent().size % operand.extent().rows >= cut) operand.at(i) += 1;
    }
    const std::vector<double> after = forward_out(problem);
    const Extent& e = problem.tensors().at("out").extent();
    bool moved = false;
    for (size_t i = 0; i < before.size(); ++i) {
      if (static_cast<int64_t>(i) / e.size % e.rows < cut)
        EXPECT_EQ(before[i], after[i]);
      else
        moved = moved || before[i] != after[i];
    }
    EXPECT_TRUE(moved);
  }
}

TEST(Reference, AFullyMaskedRowGivesZerosAndNoNaN) {
  Case c;
  for (const Case& candidate : attention_cases())
    if (candidate.name == "nothing_visible") c = candidate;
  c.q_scale.g = true;
  Problem<double> problem(c, Precision::kDouble);
  // What stands in a row that nobody reads must not matter: log 0, and NaN as the gradient of an
  // lse of -inf.
  problem.reals().at("q_scale.log_n").at(0) = -kInfinity;
  problem.reals().at("d_lse").at(0) = std::numeric_limits<double>::quiet_NaN();
  reference::forward(problem.params(), problem.outputs());
  reference::backward(problem.params(), problem.gradients());
  EXPECT_EQ(*problem.outputs().out.at(0, 0, 0), 0);
  EXPECT_EQ(*problem.outputs().lse.at(0, 0, 0), -kInfinity);
  EXPECT_EQ(*problem.outputs().max.at(0, 0, 0), -kInfinity);
  EXPECT_EQ(*problem.outputs().entropy.at(0, 0, 0), 0);
  for (const Result& gradient : problem.gradient_results())
    for (size_t i = 0; i < gradient.values.size(); ++i)
      ASSERT_TRUE(std::isfinite(gradient.values[i])) << gradient.place(i);
  EXPECT_EQ(*problem.gradients().q.at(0, 0, 0), 0);
}

TEST(Reference, ABiasOfMinusInfinityHidesItsKey) {
  Case c = small_case(4);
  c.bias = BiasCase::kShared;
  c.post = true;
  Problem<double> problem(c, Precision::kDouble);
  Tensor<double>& bias = problem.reals().at("bias");
  bias.fill(std::vector<double>(16, 0.0));
  bias.at(0) = -kInfinity;          // the only key of row 0
  bias.at(3 * 4 + 1) = -kInfinity;  // one key of row 3
  reference::forward(problem.params(), problem.outputs());
  EXPECT_EQ(problem.tensors().at("out").values()[0], 0);
  const double row3 = problem.tensors().at("out").values().back();
  problem.tensors().at("v").at(1 * 3 + 2) += 100;
  EXPECT_EQ(forward_out(problem).back(), row3);
  reference::backward(problem.params(), problem.gradients());
  for (const Result& gradient : problem.gradient_results())
    for (size_t i = 0; i < gradient.values.size(); ++i)
      ASSERT_TRUE(std::isfinite(gradient.values[i])) << gradient.place(i);
}

TEST(Reference, DropoutKeepsTheExpectedShare) {
  Case c = small_case(200);
  c.causal = false;
  c.dropout = 0.3;
  Problem<double> problem(c, Precision::kDouble);
  double kept = 0;
  for (int64_t i = 0; i < 5; ++i)
    for (const double factor : kept_keys(problem.params(), 0, 0, i * 40)) {
      EXPECT_TRUE(std::abs(factor) < 1e-9 || std::abs(factor - 1 / 0.7) < 1e-9) << factor;
      kept += factor > 0.5 ? 1 : 0;
    }
  EXPECT_NEAR(kept / 1000, 0.7, 0.06);  // four standard deviations
  const std::vector<double> first = kept_keys(problem.params(), 0, 0, 0);
  EXPECT_NE(first, kept_keys(problem.params(), 0, 0, 1));
  problem.params().seed += 1;
  EXPECT_NE(first, kept_keys(problem.params(), 0, 0, 0));
}

TEST(Reference, DecodeEqualsTheLastRowsOfTheForwardPass) {
  for (const Case& c : decode_cases()) {
    SCOPED_TRACE(c.name);
    Problem<double> problem(c, Precision::kDouble);
    reference::decode(problem.decode_params(), problem.outputs());
    const std::vector<Result> decoded = problem.output_results();
    Case contiguous = c;
    contiguous.block_size = 0;
    Problem<double> whole(contiguous, Precision::kDouble);
    for (int64_t b = 0; b < c.shape.batch; ++b) {
      // Sequence b alone, with as many keys as it has; other sequences' rows are not compared.
      AttentionParams<double> p = whole.params();
      p.shape.kv_rows = c.lengths[static_cast<size_t>(b)];
      p.mask.query_offset = p.shape.kv_rows - p.shape.q_rows;
      std::vector<int32_t> end;
      if (p.mask.key_end) {
        for (int64_t i = 0; i < p.shape.batch * p.shape.q_rows; ++i)
          end.push_back(std::min(p.mask.key_end[i], c.lengths[static_cast<size_t>(b)]));
        p.mask.key_end = end.data();
      }
      whole.poison_results();
      reference::forward(p, whole.outputs());
      const std::vector<Result> expected = whole.output_results();
      for (size_t r = 0; r < 4 && r < decoded.size(); ++r) {
        const size_t per_sequence = decoded[r].values.size() / static_cast<size_t>(c.shape.batch);
        for (size_t x = 0; x < per_sequence; ++x) {
          const size_t at = static_cast<size_t>(b) * per_sequence + x;
          expect_close(decoded[r].values[at], expected[r].values[at], decoded[r], at, c.name);
        }
      }
    }
  }
}

TEST(Cases, NamesAreUniqueAndRoundingIsToNearestEven) {
  std::map<std::string, int> names;
  for (const auto* list : {&attention_cases(), &decode_cases(), &bench_cases()})
    for (const Case& c : *list) EXPECT_EQ(++names[c.name], 1) << c.name;
  EXPECT_EQ(from_double<BFloat16>(1.0 + 1.0 / 256).bits, 0x3F80);  // a tie, down to even
  EXPECT_EQ(from_double<BFloat16>(1.0 + 3.0 / 256).bits, 0x3F82);  // a tie, up to even
  EXPECT_EQ(from_double<BFloat16>(1.0 + 1.0 / 256 + 1e-5).bits, 0x3F81);
  EXPECT_EQ(to_double(from_double<BFloat16>(-2.5)), -2.5);
}

TEST(Cases, GuardsSeeAWriteBesideTheElements) {
  for (const LayoutCase layout :
       {LayoutCase::kHeadsFirst, LayoutCase::kRowsFirst, LayoutCase::kPadded}) {
    Tensor<float> tensor({2, 3, 4, 5}, layout, 1);
    tensor.fill(std::vector<double>(120, 1.0));
    EXPECT_TRUE(tensor.guards_intact());
    tensor.first()[-1] = 0;
    EXPECT_FALSE(tensor.guards_intact());
  }
  Tensor<float> tensor({1, 1, 2, 5}, LayoutCase::kPadded, 0);
  tensor.rows().at(0, 0, 0)[5] = 0;  // the gap between the rows
  EXPECT_FALSE(tensor.guards_intact());
}

}  // namespace
}  // namespace tempera::kernels
