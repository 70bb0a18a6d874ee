// Attention from the projection against the formula written out in double precision.
#include "tempera/ops/projected.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/test_util.h"

namespace tempera::ops::projected {
namespace {

using at::Tensor;

constexpr int64_t kBatch = 2, kRows = 21, kHeads = 4, kKeyHeads = 2, kSize = 16;
constexpr int64_t kColumns = (kHeads + 2 * kKeyHeads) * kSize;

struct Place {
  at::ScalarType type;
  at::DeviceType device;
};

struct Variant {
  HeadNorm norm = HeadNorm::kNone;
  bool rotate = false, causal = true, scaled = true, packed = false;
};

// What is learned; a leaf each.
struct Inputs {
  Tensor projection, q_gain, k_gain, w, slope, value_rows;

  std::vector<Tensor> all() const { return {projection, q_gain, k_gain, w, slope, value_rows}; }
};

Inputs inputs(const Variant& variant, const Place& place) {
  const auto leaf = [&](at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
    return random(sizes, seed, type).to(place.device).requires_grad_();
  };
  const at::ScalarType real = scale_type(place.type);
  const int64_t shared = variant.norm == HeadNorm::kAllHeads ? 0 : 1;
  return {.projection = leaf({kBatch, kRows, kColumns}, 1, place.type),
          .q_gain = leaf({shared ? kSize : kHeads * kSize}, 2, real),
          .k_gain = leaf({shared ? kSize : kKeyHeads * kSize}, 3, real),
          .w = leaf({kHeads, kSize}, 4, real),
          .slope = leaf({kHeads}, 5, real),
          .value_rows = leaf({kBatch, kKeyHeads, kRows}, 6, real)};
}

// The same numbers in double on the CPU.
Inputs exact(const Inputs& in) {
  const auto leaf = [](const Tensor& t) {
    return t.detach().to(at::kCPU, at::kDouble).clone().requires_grad_();
  };
  return {leaf(in.projection), leaf(in.q_gain), leaf(in.k_gain),
          leaf(in.w),          leaf(in.slope),  leaf(in.value_rows)};
}

Tensor angles() { return random({kRows, kSize / 2}, 7); }
Tensor documents() { return at::tensor({13, 8, 21, 0}, at::kLong).view({2, 2}); }

// (B, 1, T, T): whether a row sees a key.
Tensor visible(const Variant& variant) {
  Tensor seen = at::ones({kBatch, 1, kRows, kRows}, at::kBool);
  if (variant.packed) {
    seen[0][0].slice(0, 0, 13).slice(1, 13).fill_(false);
    seen[0][0].slice(0, 13).slice(1, 0, 13).fill_(false);
  }
  return variant.causal ? seen.tril() : seen;
}

ProjectedArgs arguments(const Inputs& in, const Variant& variant) {
  ProjectedArgs args{.norm = variant.norm, .epsilon = 1e-6};
  args.q = heads_of(in.projection, 0, kHeads, kSize);
  args.k = heads_of(in.projection, kHeads, kKeyHeads, kSize);
  args.v = heads_of(in.projection, kHeads + kKeyHeads, kKeyHeads, kSize);
  if (variant.norm != HeadNorm::kNone) {
    args.q.gain = in.q_gain;
    args.k.gain = in.k_gain;
  }
  const auto device = in.projection.device();
  if (variant.rotate) {
    args.cos = angles().cos().to(device, at::kFloat);
    args.sin = angles().sin().to(device, at::kFloat);
  }
  if (variant.scaled) {
    args.q.scale.recipe = {.source = args.q.rows,
                           .w = in.w,
                           .g = in.slope,
                           .c = at::ones({kHeads}, in.w.options()),
                           .s = {}};
    args.v.scale.rows = in.value_rows;
  }
  args.q_n = args.k_n = visible(variant).sum(-1).squeeze(1).to(device);
  args.attention.causal = variant.causal;
  if (variant.packed) args.attention.documents = documents();
  return args;
}

Tensor naive_norm(const Tensor& rows, const Tensor& gain, HeadNorm norm) {
  if (norm == HeadNorm::kNone) return rows;
  const Tensor x = norm == HeadNorm::kAllHeads ? rows.flatten(2) : rows;
  return (x / (x.square().mean(-1, /*keepdim=*/true) + 1e-6).sqrt() * gain).view_as(rows);
}

Tensor naive_rotation(const Tensor& rows, bool rotate) {
  if (!rotate) return rows;
  const auto halves = rows.chunk(2, -1);
  // As float32 has them, which is what the tables are given in.
  const Tensor cos = angles().cos().to(at::kFloat).to(at::kDouble).unsqueeze(1);
  const Tensor sin = angles().sin().to(at::kFloat).to(at::kDouble).unsqueeze(1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[0] * sin + halves[1] * cos}, -1);
}

// (B, H, T, size) from everything in double on the CPU.
Tensor naive(const Inputs& in, const Variant& variant) {
  const auto parts = in.projection.view({kBatch, kRows, -1, kSize})
                         .split_with_sizes({kHeads, kKeyHeads, kKeyHeads}, 2);
  const auto turned = [&](const Tensor& rows, const Tensor& gain) {
    return naive_rotation(naive_norm(rows, gain, variant.norm), variant.rotate).transpose(1, 2);
  };
  Tensor q = turned(parts[0], in.q_gain);
  const Tensor k = turned(parts[1], in.k_gain).repeat_interleave(kHeads / kKeyHeads, 1);
  Tensor v = parts[2].transpose(1, 2);
  const Tensor seen = visible(variant);
  if (variant.scaled) {
    const Tensor log_n = seen.sum(-1).to(at::kDouble).log();
    const Tensor token = (at::gelu(parts[0].transpose(1, 2)) * in.w.unsqueeze(1)).sum(-1).tanh();
    q = q * (1 + token + in.slope.view({1, -1, 1}) * log_n).unsqueeze(-1);
    v = v * in.value_rows.unsqueeze(-1);
  }
  const Tensor logits = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(kSize));
  const Tensor weights = logits.masked_fill(seen.logical_not(), -INFINITY).softmax(-1);
  return weights.matmul(v.repeat_interleave(kHeads / kKeyHeads, 1));
}

class Projected : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA && !torch::cuda::is_available())
      GTEST_SKIP() << "there is no GPU that torch can use";
  }
  static double limit() {
    return GetParam().type == at::kDouble ? 1e-6 : GetParam().type == at::kFloat ? 1e-4 : 4e-2;
  }
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const HeadNorm norm : {HeadNorm::kNone, HeadNorm::kEachHead, HeadNorm::kAllHeads})
    for (const bool rotate : {false, true})
      for (const bool scaled : {false, true})
        for (const bool causal : {false, true})
          all.push_back({.norm = norm, .rotate = rotate, .causal = causal, .scaled = scaled});
  all.push_back({.norm = HeadNorm::kEachHead, .rotate = true, .packed = true});
  return all;
}

TEST_P(Projected, IsWhatTheFormulaSaysInValueAndGradients) {
  size_t number = 0;
  for (const Variant& variant : variants()) {
    const Inputs ours = inputs(variant, GetParam());
    const Inputs theirs = exact(ours);
    const Tensor out = attend(arguments(ours, variant)).out;
    const Tensor expected = naive(theirs, variant);
    EXPECT_LT(error_of(out.cpu(), expected), limit()) << number;
    const Tensor direction = random(expected.sizes(), 8);
    out.backward(direction.to(out.options()));
    expected.backward(direction);
    for (size_t i = 0; i < ours.all().size(); ++i) {
      const Tensor given = ours.all()[i].grad(), right = theirs.all()[i].grad();
      ASSERT_EQ(given.defined(), right.defined()) << number << " " << i;
      if (!given.defined()) continue;
      EXPECT_LT(error_of(given.cpu(), right), 3 * limit()) << number << " " << i;
    }
    ++number;
  }
}

// The rows come in pieces of several lengths, for the decode kernel and for the other one.
TEST_P(Projected, WithACacheItIsTheSame) {
  const at::NoGradGuard no_grad;
  for (const Variant& variant : variants()) {
    if (!variant.causal || variant.packed) continue;
    const Inputs in = inputs(variant, GetParam());
    const Tensor expected = attend(arguments(in, variant)).out;
    KeyCache cache{.k = at::zeros({kBatch, kKeyHeads, kRows, kSize}, in.projection.options()),
                   .v = at::zeros({kBatch, kKeyHeads, kRows, kSize}, in.projection.options()),
                   .a_k = {},
                   .a_v = {}};
    std::vector<Tensor> pieces;
    for (const int64_t rows : {18, 1, 2}) {
      const int64_t first = cache.length;
      Inputs part = in;
      part.projection = in.projection.narrow(1, first, rows);
      part.value_rows = in.value_rows.narrow(2, first, rows);
      ProjectedArgs args = arguments(part, variant);
      args.q_n = args.k_n =
          at::arange(first + 1, first + rows + 1, in.projection.options().dtype(at::kLong))
              .expand({kBatch, rows});
      if (variant.rotate) {
        args.cos = args.cos.narrow(0, first, rows);
        args.sin = args.sin.narrow(0, first, rows);
      }
      args.cache_lengths = at::full({kBatch}, first + rows, args.q_n.options().dtype(at::kInt));
      pieces.push_back(attend(args, &cache).out);
    }
    EXPECT_EQ(cache.length, kRows);
    EXPECT_LT(error_of(at::cat(pieces, 2).cpu(), expected.cpu()), 2 * limit());
    EXPECT_THROW(attend(arguments(in, variant), &cache), Error);
  }
}

TEST_P(Projected, GivesTheWeightsOfPairs) {
  const at::NoGradGuard no_grad;
  const Variant variant{.norm = HeadNorm::kEachHead, .rotate = true};
  const Inputs in = inputs(variant, GetParam());
  ProjectedArgs args = arguments(in, variant);
  const auto device = in.projection.device();
  // All keys of row 20 and one of row 3.
  args.pair_rows = at::cat({at::full({21}, 20, at::kLong), at::full({1}, 3, at::kLong)})
                       .expand({kBatch, 22})
                       .to(device);
  args.pair_keys =
      at::cat({at::arange(21), at::full({1}, 2, at::kLong)}).expand({kBatch, 22}).to(device);
  const ProjectedResult result = attend(args);
  const Tensor row = result.weight.narrow(2, 0, 21).to(at::kDouble);
  EXPECT_LT(error_of(row.sum(-1).cpu(), at::ones({kBatch, kHeads}, at::kDouble)), 10 * limit());
  const Tensor entropy = -(row * row.clamp_min(1e-30).log()).sum(-1);
  EXPECT_LT(error_of(result.entropy.select(2, 0).cpu(), entropy.cpu()), 10 * limit());
}

TEST(ProjectedHeads, ProjectionsThatDoNotFitAreNamed) {
  EXPECT_THROW(heads_of(at::zeros({2, 3, 60}), 0, 4, 16), Error);
  EXPECT_THROW(heads_of(at::zeros({3, 64}), 0, 4, 16), Error);
}

INSTANTIATE_TEST_SUITE_P(All, Projected,
                         testing::Values(Place{at::kDouble, at::kCPU}, Place{at::kFloat, at::kCPU},
                                         Place{at::kBFloat16, at::kCPU},
                                         Place{at::kFloat, at::kCUDA},
                                         Place{at::kBFloat16, at::kCUDA}));

}  // namespace
}  // namespace tempera::ops::projected
