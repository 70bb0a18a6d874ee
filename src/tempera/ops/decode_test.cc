#include <gtest/gtest.h>

#include <functional>

#include "tempera/base/error.h"
#include "tempera/ops/attention.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/test_util.h"

namespace tempera::ops {
namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kCapacity = 24, kRows = 3, kSize = 16;

DecodeArgs cached(at::ScalarType type) {
  const at::ScalarType real = type == at::kDouble ? at::kDouble : at::kFloat;
  DecodeArgs args;
  args.q = random({kBatch, kHeads, kRows, kSize}, 1, type);
  args.k = random({kBatch, kKeyHeads, kCapacity, kSize}, 2, type);
  args.v = random({kBatch, kKeyHeads, kCapacity, kSize}, 3, type);
  args.lengths = at::tensor({24, 13}, at::kInt);
  args.a_q = random({kBatch, kHeads, kRows}, 4, real);
  args.a_k = random({kBatch, kKeyHeads, kCapacity}, 5, real);
  args.a_v = random({kBatch, kKeyHeads, kCapacity}, 6, real);
  args.q_recipe = {.source = {},
                   .w = random({kHeads, kSize}, 7, real),
                   .g = random({kHeads}, 8, real),
                   .c = random({kHeads}, 9, real),
                   .s = {}};
  args.bias = random({1, kHeads, kRows, kCapacity}, 10, real);
  args.sinks = random({kHeads}, 11, real);
  args.post = random({kBatch, kHeads, kRows}, 12, real);
  args.cap = 4;
  args.want_max = args.want_entropy = args.want_head_max = true;
  return args;
}

// The same rows through attention, one sequence at a time.
AttentionResult whole(const DecodeArgs& args, int64_t b) {
  const int64_t length = args.lengths[b].item<int64_t>();
  const auto one = [&](const at::Tensor& tensor) { return tensor.slice(0, b, b + 1); };
  const auto keys = [&](const at::Tensor& tensor) { return one(tensor).slice(2, 0, length); };
  AttentionArgs full;
  full.q = one(args.q);
  full.k = keys(args.k);
  full.v = keys(args.v);
  full.a_q = one(args.a_q);
  full.a_k = keys(args.a_k);
  full.a_v = keys(args.a_v);
  full.q_recipe = args.q_recipe;
  full.bias = args.bias.slice(3, 0, length);
  full.sinks = args.sinks;
  full.post = one(args.post);
  full.cap = args.cap;
  full.causal = args.causal;
  full.window = args.window;
  if (args.window && !args.causal) full.query_offset = length - kRows;
  if (args.key_start.defined()) full.key_start = one(args.key_start);
  full.want_max = full.want_entropy = true;
  return attention(full);
}

double bound(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-4 : 2e-2;
}

void expect_equal_to_attention(const DecodeArgs& args, const AttentionResult& given) {
  const double limit = bound(args.q.scalar_type());
  for (int64_t b = 0; b < kBatch; ++b) {
    const AttentionResult expected = whole(args, b);
    EXPECT_LT(error_of(given.out[b], expected.out[0]), limit);
    EXPECT_LT(error_of(given.lse[b], expected.lse[0]), limit);
    EXPECT_LT(error_of(given.max[b], expected.max[0]), limit);
    EXPECT_LT(error_of(given.entropy[b], expected.entropy[0]), limit);
  }
}

// Scatters the contiguous cache over blocks of 4 rows in another order.
DecodeArgs paged(const DecodeArgs& args) {
  const int64_t block = 4, blocks = kCapacity / block;
  const at::Tensor table =
      at::randperm(kBatch * blocks + 3, at::kLong).slice(0, 0, kBatch * blocks).view({kBatch, -1});
  const auto scatter = [&](const at::Tensor& cache) {
    std::vector<int64_t> sizes = cache.sizes().vec();
    sizes[0] = kBatch * blocks + 3;
    sizes[2] = block;
    const at::Tensor pages = at::full(sizes, 127, cache.options());
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = 0; i < blocks; ++i)
        pages[table[b][i].item<int64_t>()].copy_(cache[b].slice(1, i * block, (i + 1) * block));
    return pages;
  };
  DecodeArgs pages = args;
  pages.k = scatter(args.k);
  pages.v = scatter(args.v);
  pages.a_k = scatter(args.a_k);
  pages.a_v = scatter(args.a_v);
  pages.block_table = table.to(at::kInt);
  return pages;
}

TEST(Decode, EqualsAttentionOverTheRowsInUse) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const bool causal : {true, false})
      for (const std::optional<int64_t> window : {std::optional<int64_t>(), {5}}) {
        DecodeArgs args = cached(type);
        args.causal = causal;
        args.window = window;
        expect_equal_to_attention(args, decode(args));
        expect_equal_to_attention(args, decode(paged(args)));
        args.key_start = at::tensor({2, 11}, at::kLong);
        expect_equal_to_attention(args, decode(args));
      }
}

// The cache in fewer bits, and what is left of its numbers in those of the queries.
struct NarrowCache {
  DecodeArgs narrow, wide;

  NarrowCache(at::ScalarType type, at::ScalarType cache_type) : narrow(cached(type)), wide(narrow) {
    const double step = cache_type == at::kChar ? 32 : 1;
    for (const auto& [few, many] : {std::pair(&narrow.k, &wide.k), {&narrow.v, &wide.v}}) {
      *few = (many->to(at::kFloat) * step).round().clamp(-127, 127);
      if (cache_type != at::kChar) *few = *many;
      *few = few->to(cache_type);
      *many = few->to(type);
    }
    narrow.a_k = wide.a_k = narrow.a_k / step;
    narrow.a_v = wide.a_v = narrow.a_v / step;
  }
};

TEST(Decode, ReadsACacheOfFewerBits) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const at::ScalarType cache_type : {at::kBFloat16, at::kChar}) {
      auto [narrow, wide] = NarrowCache(type, cache_type);
      for (const std::optional<int64_t> window : {std::optional<int64_t>(), {5}}) {
        narrow.window = wide.window = window;
        const at::Tensor expected = decode(wide).out;
        EXPECT_LT(error_of(decode(narrow).out, expected), bound(type));
        EXPECT_LT(error_of(decode(paged(narrow)).out, expected), bound(type));
      }
    }
}

TEST(Decode, TheCompositionReadsACacheOfFewerBits) {
  for (const at::ScalarType cache_type : {at::kBFloat16, at::kChar}) {
    DecodeArgs args = NarrowCache(at::kDouble, cache_type).narrow;
    args.sinks.reset();
    args.post.reset();
    args.cap = 0;
    args.want_max = args.want_entropy = args.want_head_max = false;
    const at::Tensor expected = decode(args).out;
    EXPECT_LT(error_of(composed_backend().decode(args).out, expected), 1e-12);
    EXPECT_LT(error_of(composed_backend().decode(paged(args)).out, expected), 1e-12);
  }
}

// They are a part of the keys and values, of which nobody asks whether they are finite.
TEST(Decode, AFactorOfWholeNumbersMayShowThatOneWasNone) {
  DecodeArgs args = NarrowCache(at::kFloat, at::kChar).narrow;
  args.a_v = args.a_v.clone();
  args.a_v[0][1][4] = NAN;
  const at::Tensor out = decode(args).out;
  EXPECT_TRUE(out[0].slice(0, 2, 4).isnan().all().item<bool>());
  EXPECT_FALSE(out[0].slice(0, 0, 2).isnan().any().item<bool>());
  EXPECT_FALSE(out[1].isnan().any().item<bool>());
}

TEST(Decode, AnEmptyCacheGivesZeros) {
  DecodeArgs args = cached(at::kDouble);
  args.lengths = at::tensor({0, 13}, at::kInt);
  const AttentionResult result = decode(args);
  EXPECT_TRUE(result.out[0].eq(0).all().item<bool>());
  EXPECT_TRUE(result.lse[0].isneginf().all().item<bool>());
  EXPECT_LT(error_of(result.out[1], whole(args, 1).out[0]), 1e-12);
}

// Without what torch's own attention does not have.
DecodeArgs composable_cache(at::ScalarType type) {
  DecodeArgs args = cached(type);
  args.sinks.reset();
  args.post.reset();
  args.cap = 0;
  args.want_max = args.want_entropy = args.want_head_max = false;
  return args;
}

TEST(Decode, AgreesWithTheComposition) {
  for (const bool causal : {true, false})
    for (const std::optional<int64_t> window : {std::optional<int64_t>(), {5}}) {
      DecodeArgs args = composable_cache(at::kDouble);
      args.causal = causal;
      args.window = window;
      EXPECT_LT(error_of(composed_backend().decode(args).out, decode(args).out), 1e-12);
      args.key_start = at::tensor({2, 11}, at::kLong);
      args.a_k = args.a_k.slice(0, 0, 1).slice(2, 0, 1);
      EXPECT_LT(error_of(composed_backend().decode(args).out, decode(args).out), 1e-12);
    }
}

TEST(Decode, TheCompositionReadsPagesAndNothingBeyondALength) {
  DecodeArgs args = composable_cache(at::kDouble);
  const at::Tensor expected = decode(args).out;
  for (at::Tensor* cache : {&args.k, &args.v}) (*cache)[1].slice(1, 13).fill_(NAN);
  EXPECT_LT(error_of(composed_backend().decode(args).out, expected), 1e-12);
  DecodeArgs pages = paged(args);
  pages.block_table[1][4] = 999;
  EXPECT_LT(error_of(composed_backend().decode(pages).out, expected), 1e-12);
  args.lengths = at::tensor({0, 13}, at::kInt);
  EXPECT_LT(error_of(composed_backend().decode(args).out, decode(args).out), 1e-12);
  args.lengths.zero_();
  EXPECT_LT(error_of(composed_backend().decode(args).out, decode(args).out), 1e-12);
}

TEST(Decode, TheCompositionNamesWhatItCannotDo) {
  DecodeArgs args = composable_cache(at::kDouble);
  args.sinks = at::ones({kHeads});
  try {
    composed_backend().decode(args);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sinks (sink logits) is not available"),
              std::string::npos)
        << error.what();
  }
}

struct BadDecodeCase {
  const char* message;
  std::function<void(DecodeArgs&)> spoil;
};

TEST(Decode, BadArgumentsAreNamed) {
  using A = DecodeArgs;
  const std::vector<BadDecodeCase> cases = {
      {"one of them is undefined", [](A& a) { a.lengths.reset(); }},
      {"lengths: 25 given",
       [](A& a) {
         a.lengths = at::tensor({24, 25}, at::kInt);
       }},
      {"lengths: -1 given",
       [](A& a) {
         a.lengths = at::tensor({-1, 2}, at::kInt);
       }},
      {"lengths: shape [1] given", [](A& a) { a.lengths = at::tensor({2}, at::kInt); }},
      {"lengths: dtype Float given", [](A& a) { a.lengths = at::ones({2}); }},
      {"block 15 given",
       [](A& a) {
         a = paged(a);
         a.block_table[1][0] = 15;
       }},
      {"block -1 given",
       [](A& a) {
         a = paged(a);
         a.block_table[0][5] = -1;
       }},
      {"block_table: shape [1, 6] given",
       [](A& a) {
         a = paged(a);
         a.block_table = a.block_table.slice(0, 0, 1);
       }},
      {"k: shape [1, 2, 24, 16] given", [](A& a) { a.k = a.k.slice(0, 0, 1); }},
      {"k: dtype Half given", [](A& a) { a.k = a.k.to(at::kHalf); }},
      {"v: dtype Double given, Char expected, as k has", [](A& a) { a.k = a.k.to(at::kChar); }},
      {"a_k: shape [2, 4, 24] given",
       [](A& a) {
         a.a_k = at::ones({2, 4, 24});
       }},
      {"a_v: NaN or infinite",
       [](A& a) {
         a.a_v = at::full({2, 2, 24}, NAN);
       }},
      {"bias: shape [1, 4, 3, 23] given",
       [](A& a) {
         a.bias = at::ones({1, 4, 3, 23});
       }},
      {"key_start: 25 given",
       [](A& a) {
         a.key_start = at::tensor({25, 0}, at::kLong);
       }},
      {"window: 0 given", [](A& a) { a.window = 0; }},
      {"decode has no gradients", [](A& a) { a.a_q.requires_grad_(); }},
  };
  for (const BadDecodeCase& bad : cases) {
    DecodeArgs args = cached(at::kDouble);
    bad.spoil(args);
    std::string message = "no error";
    try {
      decode(args);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.message << "\n" << message;
  }
}

TEST(Decode, EntriesBeyondALengthAreNotRead) {
  DecodeArgs args = paged(cached(at::kDouble));
  args.block_table[1][4] = 999;  // 13 rows are in 4 blocks
  EXPECT_NO_THROW(decode(args));
  const at::NoGradGuard guard;
  args.q.requires_grad_();
  EXPECT_NO_THROW(decode(args));
}

}  // namespace
}  // namespace tempera::ops
