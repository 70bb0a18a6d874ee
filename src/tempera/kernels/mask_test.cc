#include "tempera/kernels/mask.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/error.h"

namespace tempera::kernels {
namespace {

using Numbers = std::vector<int32_t>;

std::string message_of(const RowLayout& queries, const RowLayout& keys) {
  try {
    visible_ranges(queries, keys);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Mask mask_of(const VisibleRanges& ranges, bool causal, int64_t window = 0) {
  Mask mask;
  mask.causal = causal;
  mask.window = window;
  mask.key_begin = ranges.begin.data();
  mask.key_end = ranges.end.data();
  return mask;
}

Shape self_shape(int64_t batch, int64_t rows) {
  return {.batch = batch,
          .q_heads = 1,
          .kv_heads = 1,
          .q_rows = rows,
          .kv_rows = rows,
          .qk_size = 1,
          .v_size = 1};
}

TEST(VisibleRanges, DocumentsOfSelfAttention) {
  const VisibleRanges ranges = visible_ranges({.batch = 2, .rows = 4, .documents = {{1, 3}, {4}}});
  EXPECT_EQ(ranges.begin, (Numbers{0, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(ranges.end, (Numbers{1, 4, 4, 4, 4, 4, 4, 4}));
}

TEST(VisibleRanges, PaddingIsNotSeenAndSeesNothing) {
  const VisibleRanges ranges = visible_ranges({.batch = 2, .rows = 3, .content = {{1, 3}, {0, 2}}});
  EXPECT_EQ(ranges.begin, (Numbers{0, 1, 1, 0, 0, 0}));
  EXPECT_EQ(ranges.end, (Numbers{0, 3, 3, 2, 2, 0}));
}

TEST(VisibleRanges, CrossAttentionReadsTheDocumentOfTheSameNumber) {
  const VisibleRanges ranges =
      visible_ranges({.batch = 1, .rows = 4, .documents = {{2, 1, 1}}},
                     {.batch = 1, .rows = 5, .documents = {{3, 0, 2}}, .content = {{1, 4}}});
  EXPECT_EQ(ranges.begin, (Numbers{1, 1, 0, 3}));
  EXPECT_EQ(ranges.end, (Numbers{3, 3, 0, 4}));
}

TEST(VisibleRanges, ErrorsNameTheSequenceAndTheNumbers) {
  const RowLayout good{.batch = 2, .rows = 4, .documents = {{4}, {4}}};
  const RowLayout short_sum{.batch = 2, .rows = 4, .documents = {{4}, {1, 2}}};
  EXPECT_NE(message_of(short_sum, good)
                .find("queries: the documents of sequence 1 sum to 3 rows, 4 expected"),
            std::string::npos);
  EXPECT_NE(message_of(good, short_sum).find("keys: the documents of sequence 1"),
            std::string::npos);
  EXPECT_NE(message_of({.batch = 1, .rows = 4, .documents = {{5, -1}}}, good).find("-1"),
            std::string::npos);
  EXPECT_NE(
      message_of({.batch = 2, .rows = 4, .documents = {{4}}}, good).find("1 sequences given, 2"),
      std::string::npos);
  EXPECT_NE(
      message_of({.batch = 2, .rows = 4, .documents = {{2, 2}, {4}}}, good).find("document d"),
      std::string::npos);
  EXPECT_NE(message_of({.batch = 1, .rows = 4}, good).find("as many expected"), std::string::npos);
  EXPECT_NE(message_of({.batch = 1, .rows = 4, .content = {{0, 5}}}, good).find("0 to 5"),
            std::string::npos);
}

TEST(VisibleRanges, NothingIsFine) {
  EXPECT_TRUE(visible_ranges({.batch = 0, .rows = 7}).begin.empty());
  EXPECT_TRUE(visible_ranges({.batch = 3, .rows = 0, .documents = {{}, {}, {0}}}).begin.empty());
}

TEST(VisibleCounts, AreTheKeysThatTheRowSees) {
  const VisibleRanges packed = visible_ranges({.batch = 1, .rows = 6, .documents = {{2, 4}}});
  EXPECT_EQ(visible_counts(mask_of(packed, true), self_shape(1, 6)), (Numbers{1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(visible_counts(mask_of(packed, false), self_shape(1, 6)), (Numbers{2, 2, 4, 4, 4, 4}));
  EXPECT_EQ(visible_counts(mask_of(packed, true, 2), self_shape(1, 6)),
            (Numbers{1, 2, 1, 2, 2, 2}));
  EXPECT_EQ(visible_counts(mask_of(packed, false, 2), self_shape(1, 6)),
            (Numbers{2, 2, 2, 3, 3, 2}));
  const VisibleRanges padded = visible_ranges({.batch = 2, .rows = 4, .content = {{2, 4}, {0, 3}}});
  EXPECT_EQ(visible_counts(mask_of(padded, true), self_shape(2, 4)),
            (Numbers{0, 0, 1, 2, 1, 2, 3, 0}));
  // A cache of 5 keys and one new row.
  const Shape cached{.batch = 1,
                     .q_heads = 1,
                     .kv_heads = 1,
                     .q_rows = 1,
                     .kv_rows = 6,
                     .qk_size = 1,
                     .v_size = 1};
  EXPECT_EQ(visible_counts({.causal = true, .query_offset = 5}, cached), (Numbers{6}));
}

TEST(VisibleCounts, LogOfNothingIsZero) {
  const VisibleRanges padded = visible_ranges({.batch = 1, .rows = 3, .content = {{1, 3}}});
  const std::vector<double> logs =
      log_visible_counts<double>(mask_of(padded, true), self_shape(1, 3));
  EXPECT_EQ(logs, (std::vector<double>{0, 0, std::log(2.0)}));
}

}  // namespace
}  // namespace tempera::kernels
