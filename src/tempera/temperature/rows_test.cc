#include "tempera/temperature/rows.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/scan.h"
#include "tempera/temperature/state.h"

namespace tempera {
namespace {

using Row = std::vector<int64_t>;

Row row(const torch::Tensor& tensor, int64_t b = 0) {
  const auto values = tensor[b].to(torch::kInt64).contiguous();
  return {values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + values.numel()};
}

TEST(SequenceRows, CountVisibleKeysUnderEveryMask) {
  const auto rows = [](const SequenceMask& mask) { return sequence_rows(mask, 1, 6, torch::kCPU); };
  const auto documents = torch::tensor({{2, 4, 0}});

  EXPECT_EQ(row(rows({.causal = true}).n), Row({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(row(rows({.causal = true}).position), Row({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(row(rows({}).n), Row({6, 6, 6, 6, 6, 6}));

  const auto packed = rows({.documents = documents, .causal = true});
  EXPECT_EQ(row(packed.n), Row({1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(row(packed.position), Row({0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(row(rows({.documents = documents}).n), Row({2, 2, 4, 4, 4, 4}));

  const auto left = rows({.start = torch::tensor({2}), .causal = true});
  EXPECT_EQ(row(left.n), Row({0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(row(left.position), Row({-1, -1, 0, 1, 2, 3}));

  const auto right = rows({.end = torch::tensor({4})});
  EXPECT_EQ(row(right.n), Row({4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(row(right.position), Row({0, 1, 2, 3, -1, -1}));

  EXPECT_EQ(row(rows({.causal = true, .window = 3}).n), Row({1, 2, 3, 3, 3, 3}));
  EXPECT_EQ(row(rows({.causal = true, .window = 3}).position), Row({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(row(rows({.window = 2}).n), Row({2, 3, 3, 3, 3, 2}));
  EXPECT_EQ(row(rows({.documents = documents, .causal = true, .window = 2}).n),
            Row({1, 2, 1, 2, 2, 2}));
}

TEST(DecodeRows, ContinueTheSequence) {
  const auto lengths = torch::tensor({6, 3}, torch::kInt32);
  const auto rows = decode_rows(lengths, 2, {}, {});
  EXPECT_EQ(row(rows.n, 0), Row({5, 6}));
  EXPECT_EQ(row(rows.n, 1), Row({2, 3}));
  EXPECT_EQ(row(rows.position, 1), Row({1, 2}));
  const auto padded = decode_rows(lengths, 2, torch::tensor({1, 2}), 3);
  EXPECT_EQ(row(padded.n, 0), Row({3, 3}));
  EXPECT_EQ(row(padded.n, 1), Row({0, 1}));
  EXPECT_EQ(row(padded.position, 1), Row({-1, 0}));
}

TEST(CrossCounts, AreTheUnmaskedSourceRows) {
  EXPECT_EQ(row(cross_counts({}, {}, {}, torch::tensor({4}), 1, 2, 6, torch::kCPU)), Row({4, 4}));
  const auto counts = cross_counts(torch::tensor({{1, 2}}), torch::tensor({{4, 2}}),
                                   torch::tensor({1}), {}, 1, 3, 6, torch::kCPU);
  EXPECT_EQ(row(counts), Row({3, 2, 2}));
  EXPECT_THROW(cross_counts(torch::tensor({{3}}), {}, {}, {}, 1, 3, 6, torch::kCPU), Error);
}

TEST(DocumentPrefixSums, RestartInEveryDocument) {
  const auto values = torch::tensor({{1, 2, 3, 4, 5, 6, 7, 8}}, torch::kFloat64);
  const auto position = torch::tensor({{-1, 0, 1, 2, 3, 4, 0, 1}});
  EXPECT_EQ(row(document_prefix_sums(values, position, {})), Row({0, 2, 5, 9, 14, 20, 7, 15}));
}

TEST(DocumentPrefixSums, GoOnFromThePast) {
  const auto values = torch::tensor({{1, 2, 3}}, torch::kFloat64);
  const auto position = torch::tensor({{4, 5, 0}});
  const auto past = torch::tensor({10.0}, torch::kFloat64);
  EXPECT_EQ(row(document_prefix_sums(values, position, past)), Row({11, 13, 3}));
  EXPECT_THROW(document_prefix_sums(values, position, {}), Error);
}

TEST(DocumentPrefixSums, AreTheSameBitsWhereverTheDocumentStands) {
  const auto document = (torch::arange(1, 38, torch::kFloat64) * 0.7).sin();
  const auto inside = torch::arange(37);
  const auto alone = document_prefix_sums(document.unsqueeze(0), inside.unsqueeze(0), {});
  const double infinity = std::numeric_limits<double>::infinity();
  const auto before = torch::tensor({1e300, infinity, std::nan("")}, torch::kFloat64);
  const auto packed = document_prefix_sums(torch::cat({before, document}).unsqueeze(0),
                                           torch::cat({torch::arange(3), inside}).unsqueeze(0), {});
  EXPECT_TRUE(packed.narrow(1, 3, 37).equal(alone));
}

TEST(DocumentLastRows, NameTheEndOfTheDocument) {
  const auto last = document_last_rows(torch::tensor({{0, 1, 2, 0, 1, -1, -1}}));
  EXPECT_EQ(row(last.narrow(1, 0, 5)), Row({2, 2, 2, 4, 4}));
}

TEST(MethodState, KeepsEveryPosition) {
  MethodState state(2, 1);
  EXPECT_FALSE(state.last().defined());
  const auto rows = [](std::vector<double> values) {
    const auto size = static_cast<int64_t>(values.size()) / 2;
    return torch::tensor(values, torch::kFloat64).view({2, size, 1});
  };
  state.append(rows({1, 2, 3, 10, 20, 30}));
  EXPECT_TRUE(state.last().equal(torch::tensor({{3.0}, {30.0}}, torch::kFloat64)));
  MethodState fork = state.fork();
  state.truncate({1, 2});
  EXPECT_TRUE(state.last().equal(torch::tensor({{1.0}, {20.0}}, torch::kFloat64)));
  state.append(rows({7, 70}));
  EXPECT_EQ(state.lengths(), std::vector<int64_t>({2, 3}));
  EXPECT_TRUE(state.last().equal(torch::tensor({{7.0}, {70.0}}, torch::kFloat64)));
  EXPECT_TRUE(fork.last().equal(torch::tensor({{3.0}, {30.0}}, torch::kFloat64)));
  const MethodState swapped = fork.select({1, 1, 0});
  EXPECT_TRUE(swapped.last().equal(torch::tensor({{30.0}, {30.0}, {3.0}}, torch::kFloat64)));
  fork.truncate({0, 1});
  EXPECT_TRUE(fork.last().equal(torch::tensor({{0.0}, {10.0}}, torch::kFloat64)));
  EXPECT_THROW(fork.truncate(5), Error);
  EXPECT_THROW(fork.select({2}), Error);
}

TEST(MethodState, WithoutWidthKeepsNothing) {
  MethodState state(2, 0);
  state.append({});
  state.truncate(7);
  EXPECT_FALSE(state.last().defined());
}

}  // namespace
}  // namespace tempera
