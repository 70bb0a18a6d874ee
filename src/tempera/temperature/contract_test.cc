#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "tempera/ops/torch.h"
#include "tempera/temperature/testing_layer.h"

// What every method must keep, run on each by its being registered: every variant of its options,
// in float64 (the reference) and float32 (the fast kernels).
namespace tempera {
namespace {

struct Case {
  std::string method;
  MethodOptions options;
  std::optional<MethodOptions> plain;
  std::string folds;
  torch::ScalarType type;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    for (const auto& entry : method_registry()) {
      for (const auto& options : entry.variants) {
        cases.push_back({entry.name, options, entry.plain, entry.folds, type});
      }
    }
    cases.push_back({"ssa+focal-learned+ssmax+value", {}, {}, "no", type});
  }
  return cases;
}

std::string case_name(const Case& c) {
  std::string name = c.method;
  for (const auto& [key, value] : c.options) name += "_" + key + "_" + config::plain_text(value);
  name += c.type == torch::kFloat64 ? "_f64" : c.type == torch::kFloat32 ? "_f32" : "_bf16";
  for (auto& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

void PrintTo(const Case& c, std::ostream* out) { *out << case_name(c); }

std::shared_ptr<Method> make(const std::string& text, const MethodOptions& options,
                             AttentionKind kind = AttentionKind::kCausal) {
  return make_method(method_specs(text, options, Origin::kScratch), tiny_shape(kind));
}

// Moves every parameter off its start, so that no term is at rest.
void stir(Method& method, double amount = 0.2) {
  const torch::NoGradGuard no_grad;
  double phase = 5;
  for (auto& parameter : method.parameters()) {
    parameter.add_(amount * pattern(parameter.sizes(), phase, parameter.scalar_type()));
    phase += 1;
  }
}

int64_t differing_bits(const torch::Tensor& left, const torch::Tensor& right) {
  return left.ne(right).sum().item<int64_t>();
}

// The largest difference against the largest number.
double distance(const torch::Tensor& given, const torch::Tensor& expected) {
  return ((given - expected).abs().max() / expected.abs().max()).item<double>();
}

constexpr int64_t kRows = 9;

class Contract : public testing::TestWithParam<Case> {
 protected:
  // The shapes are too small to share out.
  static void SetUpTestSuite() { torch::set_num_threads(1); }

  TinyLayer layer(const MethodOptions& options, AttentionKind kind = AttentionKind::kCausal) {
    return {make(GetParam().method, options, kind), GetParam().type};
  }
  TinyLayer stirred(AttentionKind kind = AttentionKind::kCausal) {
    auto made = layer(GetParam().options, kind);
    stir(made.method());
    return made;
  }
  torch::Tensor x(int64_t batch = 2, int64_t rows = kRows, double phase = 11) const {
    return pattern({batch, rows, tiny_shape().d_model}, phase, GetParam().type);
  }
  static torch::Tensor tokens(int64_t batch = 2, int64_t rows = kRows) {
    return torch::arange(batch * rows).remainder(tiny_shape().vocabulary).view({batch, rows});
  }
  double tolerance() const {
    const auto type = GetParam().type;
    return type == torch::kFloat64 ? 1e-12 : type == torch::kFloat32 ? 1e-5 : 0.05;
  }
  bool does_nothing() const { return GetParam().method == "softmax"; }
};

TEST_P(Contract, GivesFiniteScalesOfTheRightShape) {
  for (const auto kind : {AttentionKind::kCausal, AttentionKind::kEncoder, AttentionKind::kCross}) {
    auto tiny = stirred(kind);
    const SequenceMask mask{.causal = kind == AttentionKind::kCausal};
    const auto rows = sequence_rows(mask, 2, kRows, torch::kCPU);
    auto in = tiny.inputs(x(), tokens(), rows);
    if (kind == AttentionKind::kCross) {  // three queries of a decoder, nine source rows
      const auto decoder = sequence_rows({.causal = true}, 2, 3, torch::kCPU);
      in.queries = {x(2, 3), tokens(2, 3), cross_counts({}, {}, {}, {}, 2, 3, kRows, torch::kCPU),
                    decoder.position};
      in.q = tiny.q(in.queries.x);
    }
    const auto scales = tiny.method().forward(in);
    const auto type = scale_type(GetParam().type);
    const auto check = [&](const RowScale& scale, int64_t heads, const torch::Tensor& n) {
      if (!scale.present()) return;
      const auto values = finish(scale, n, type).expand({2, heads, n.size(1)});
      EXPECT_EQ(values.scalar_type(), type);
      EXPECT_TRUE(values.isfinite().all().item<bool>());
    };
    check(scales.q, 4, in.queries.n);
    check(scales.k, 2, in.keys.n);
    check(scales.v, 2, in.keys.n);
    EXPECT_EQ(scales.q.present() || scales.k.present() || scales.v.present(), !does_nothing());
    const auto out = tiny.attend(in, scales, mask);
    EXPECT_EQ(out.sizes(), torch::IntArrayRef({2, 4, in.q.size(2), 24}));
    EXPECT_TRUE(out.isfinite().all().item<bool>());
  }
}

TEST_P(Contract, TemperatureOneIsPlainAttentionToTheBit) {
  const auto& plain_options = GetParam().plain;
  if (!plain_options) GTEST_SKIP() << "cannot be plain attention";
  auto tiny = layer(*plain_options);
  TinyLayer plain(make("softmax", {}), GetParam().type);
  const SequenceMask mask{.causal = true};
  EXPECT_EQ(differing_bits(tiny.forward(x(), tokens(), mask), plain.forward(x(), tokens(), mask)),
            0);
}

TEST_P(Contract, ChangingTheTemperatureChangesTheOutput) {
  if (does_nothing()) GTEST_SKIP() << "has no temperature";
  auto tiny = stirred();
  TinyLayer plain(make("softmax", {}), GetParam().type);
  const SequenceMask mask{.causal = true};
  const auto difference =
      (tiny.forward(x(), tokens(), mask) - plain.forward(x(), tokens(), mask)).abs();
  // Every row from the first that a stepwise method touches; row 0 sees one key and would hide a
  // wrong scale.
  const auto largest = difference.amax({0, 1, 3});
  for (int64_t row = 4; row < kRows; ++row) {
    EXPECT_GT(largest[row].item<double>(), 1e-3) << "row " << row;
  }
}

// Along three directions for every leaf.
TEST_P(Contract, GradientsAgreeWithFiniteDifferences) {
  if (GetParam().type != torch::kFloat64) GTEST_SKIP() << "float64 only";
  auto tiny = layer(GetParam().options);
  stir(tiny.method(), 0.03);  // a clip lets gradients pass that no finite difference shows
  const SequenceMask mask{.documents = torch::tensor({{4, 5}}), .causal = true};
  auto input = x(1).requires_grad_();
  const auto weights = pattern({1, 4, kRows, 24}, 17, torch::kFloat64);
  const auto loss = [&] { return (tiny.forward(input, tokens(1), mask) * weights).sum(); };
  auto leaves = tiny.method().parameters();
  leaves.push_back(input);
  const auto gradients = torch::autograd::grad({loss()}, leaves);
  const torch::NoGradGuard no_grad;
  const double step = 1e-5;
  for (size_t l = 0; l < leaves.size(); ++l) {
    EXPECT_GT(gradients[l].abs().max().item<double>(), 0) << "dead leaf " << l;
    for (const double phase : {21.0, 22.0, 23.0}) {
      const auto direction = pattern(leaves[l].sizes(), phase, torch::kFloat64);
      leaves[l].add_(direction, step);
      const double up = loss().item<double>();
      leaves[l].add_(direction, -2 * step);
      const double down = loss().item<double>();
      leaves[l].add_(direction, step);
      const double expected = (up - down) / (2 * step);
      EXPECT_NEAR((gradients[l] * direction).sum().item<double>(), expected,
                  1e-6 * (1 + std::abs(expected)))
          << "leaf " << l;
    }
  }
}

TEST_P(Contract, EveryParameterLearnsFromTheStart) {
  // A parameter may rest while another is 0 at the start (a network's first layer behind a zero
  // second one), but not all.
  auto tiny = layer(GetParam().options);
  const auto parameters = tiny.method().parameters();
  if (parameters.empty()) GTEST_SKIP() << "has no parameters";
  const auto out = tiny.forward(x(), tokens(), {.causal = true});
  const auto gradients = torch::autograd::grad({out.square().sum()}, parameters);
  double largest = 0;
  for (const auto& gradient : gradients) {
    largest = std::max(largest, gradient.abs().max().item<double>());
  }
  EXPECT_GT(largest, 0);
}

TEST_P(Contract, NoEarlierRowSeesALaterToken) {
  auto tiny = stirred();
  const SequenceMask mask{.causal = true};
  const auto before = tiny.forward(x(), tokens(), mask);
  for (const int64_t changed : {1L, 5L, kRows - 1}) {
    auto later = x();
    later.narrow(1, changed, kRows - changed).mul_(-1.5);
    auto other = tokens();
    other.narrow(1, changed, kRows - changed).add_(1).remainder_(tiny_shape().vocabulary);
    const auto after = tiny.forward(later, other, mask);
    EXPECT_EQ(differing_bits(before.narrow(2, 0, changed), after.narrow(2, 0, changed)), 0);
    EXPECT_GT(differing_bits(before, after), 0);
  }
}

TEST_P(Contract, AnotherDocumentChangesNoBit) {
  for (const auto kind : {AttentionKind::kCausal, AttentionKind::kEncoder}) {
    auto tiny = stirred(kind);
    const SequenceMask mask{.documents = torch::tensor({{3, 4, 2}, {5, 4, 0}}),
                            .causal = kind == AttentionKind::kCausal};
    const auto before = tiny.forward(x(), tokens(), mask);
    auto changed = x();
    changed[0].narrow(0, 3, 4).mul_(1e3);
    changed[1].narrow(0, 0, 5).mul_(-1e3);
    auto other = tokens();
    other[0].narrow(0, 3, 4).fill_(2);
    other[1].narrow(0, 0, 5).fill_(3);
    const auto after = tiny.forward(changed, other, mask);
    const auto part = [](const torch::Tensor& out, int64_t b, int64_t row, int64_t rows) {
      return out[b].narrow(1, row, rows);
    };
    EXPECT_EQ(differing_bits(part(before, 0, 0, 3), part(after, 0, 0, 3)), 0);
    EXPECT_EQ(differing_bits(part(before, 0, 7, 2), part(after, 0, 7, 2)), 0);
    EXPECT_EQ(differing_bits(part(before, 1, 5, 4), part(after, 1, 5, 4)), 0);
    EXPECT_GT(differing_bits(part(before, 0, 3, 4), part(after, 0, 3, 4)), 0);
  }
}

TEST_P(Contract, APackedDocumentEqualsTheDocumentAlone) {
  for (const auto kind : {AttentionKind::kCausal, AttentionKind::kEncoder}) {
    auto tiny = stirred(kind);
    const bool causal = kind == AttentionKind::kCausal;
    const auto packed =
        tiny.forward(x(1), tokens(1), {.documents = torch::tensor({{4, 5}}), .causal = causal});
    const auto alone =
        tiny.forward(x(1).narrow(1, 4, 5), tokens(1).narrow(1, 4, 5), {.causal = causal});
    EXPECT_LT(distance(packed.narrow(2, 4, 5), alone), tolerance());
  }
}

TEST_P(Contract, PaddingChangesNothing) {
  for (const auto kind : {AttentionKind::kCausal, AttentionKind::kEncoder}) {
    auto tiny = stirred(kind);
    const bool causal = kind == AttentionKind::kCausal;
    // Two rows of padding on the left in one sequence, on the right in the other.
    const SequenceMask mask{
        .start = torch::tensor({2, 0}), .end = torch::tensor({kRows, kRows - 2}), .causal = causal};
    auto input = x().requires_grad_();
    const auto out = tiny.forward(input, tokens(), mask);
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t first = b == 0 ? 2 : 0;
      const auto alone =
          tiny.forward(x().narrow(0, b, 1).narrow(1, first, kRows - 2),
                       tokens().narrow(0, b, 1).narrow(1, first, kRows - 2), {.causal = causal});
      EXPECT_LT(distance(out[b].narrow(1, first, kRows - 2), alone[0]), tolerance()) << b;
    }
    const auto gradient = torch::autograd::grad({out.square().sum()}, {input}).front();
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

TEST_P(Contract, CachedDecodingEqualsTheFullPass) {
  const torch::NoGradGuard no_grad;
  for (const std::optional<int64_t> window :
       {std::optional<int64_t>(), std::optional<int64_t>(4)}) {
    auto tiny = stirred();
    ASSERT_TRUE(tiny.method().cacheable());
    const SequenceMask mask{.causal = true, .window = window};
    const auto full = tiny.forward(x(), tokens(), mask);
    const auto step = [&](TinyCache& cache, int64_t from, int64_t rows) {
      return cache.step(x().narrow(1, from, rows), tokens().narrow(1, from, rows));
    };
    const auto expect_rows = [&](const torch::Tensor& out, int64_t from, int64_t rows) {
      EXPECT_LT(distance(out, full.narrow(2, from, rows)), tolerance()) << from << " + " << rows;
    };
    TinyCache cache(tiny, 2, kRows, window);
    expect_rows(step(cache, 0, 5), 0, 5);
    const auto row5 = step(cache, 5, 1);
    expect_rows(row5, 5, 1);

    TinyCache fork = cache.fork();
    fork.step(x(2, 2, 99), tokens(2, 2));  // another continuation must not reach the first
    expect_rows(step(cache, 6, 3), 6, 3);

    cache.truncate(5);
    EXPECT_EQ(differing_bits(step(cache, 5, 1), row5), 0) << "after truncating";
    fork.truncate(6);
    expect_rows(step(fork, 6, 2), 6, 2);
  }
}

TEST_P(Contract, SurvivesSaveAndLoad) {
  auto tiny = stirred();
  std::stringstream file;
  torch::serialize::OutputArchive saved;
  tiny.method().save(saved);
  saved.save_to(file);

  TinyLayer fresh(make_method(tiny.method().specs(), tiny_shape()), GetParam().type);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  fresh.method().load(archive);
  EXPECT_EQ(fresh.method().specs(), tiny.method().specs());
  const SequenceMask mask{.causal = true};
  EXPECT_EQ(differing_bits(tiny.forward(x(), tokens(), mask), fresh.forward(x(), tokens(), mask)),
            0);
}

TEST_P(Contract, DrawsNoRandomNumbers) {
  torch::manual_seed(7);
  const auto expected = torch::rand({4});
  torch::manual_seed(7);
  const auto method = make(GetParam().method, GetParam().options);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST_P(Contract, FoldsAsItsEntrySays) {
  auto tiny = stirred();
  const auto constant = tiny.method().constant();
  ASSERT_EQ(constant.has_value(), GetParam().folds != "no");
  if (!constant) return;
  EXPECT_EQ(constant->q.defined(), GetParam().folds == "W_q");
  EXPECT_EQ(constant->v.defined(), GetParam().folds == "W_v");
  // Folding multiplies the projections of a head; here the normed queries stand for them.
  const SequenceMask mask{.causal = true};
  const auto in = tiny.inputs(x(), tokens(), sequence_rows(mask, 2, kRows, torch::kCPU));
  ops::AttentionArgs args;
  args.q = TinyLayer::normed(in.q);
  args.k = TinyLayer::normed(in.k);
  args.v = in.v;
  args.causal = true;
  const auto scaled = [&](const torch::Tensor& rows, const torch::Tensor& scale) {
    return scale.defined() ? rows * scale.to(GetParam().type).view({1, -1, 1, 1}) : rows;
  };
  args.q = scaled(args.q, constant->q);
  args.v = scaled(args.v, constant->v);
  EXPECT_LT(distance(ops::attention(args).out, tiny.forward(x(), tokens(), mask)), tolerance());
}

INSTANTIATE_TEST_SUITE_P(Methods, Contract, testing::ValuesIn(all_cases()),
                         [](const auto& parameter) { return case_name(parameter.param); });

}  // namespace
}  // namespace tempera
