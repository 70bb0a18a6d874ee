#include "tempera/data/spread_windows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tempera/base/testing.h"
#include "tempera/data/testing_rows.h"

namespace tempera::data {
namespace {

// How many parts move by themselves.
int64_t jumps(const Batch& batch, int64_t begin, int64_t size) {
  int64_t count = 0;
  for (int64_t i = begin + 1; i < begin + size; ++i)
    count +=
        batch.positions[static_cast<size_t>(i)] > batch.positions[static_cast<size_t>(i - 1)] + 1;
  return count;
}

TEST(SpreadWindows, PartsMoveOverTheWholeContext) {
  const auto whole = rows_of({2560}, 256);
  const SpreadWindows spread(whole, {.context = 8192, .parts = 4, .seed = 3});
  int64_t far = 0, last = 0, steps = 200;
  for (uint64_t step = 0; step < 200; ++step) {
    const Batch batch = spread.train(whole_batch(step, 1));
    EXPECT_EQ(batch.tokens, whole->train(whole_batch(step, 1)).tokens);
    EXPECT_EQ(batch.position_end, 8192);
    ASSERT_EQ(batch.positions.size(), 256U);
    EXPECT_EQ(batch.positions.front(), 0);
    for (size_t i = 1; i < batch.positions.size(); ++i)
      ASSERT_GT(batch.positions[i], batch.positions[i - 1]);
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(batch.positions[i], i) << "no part is that short";
    EXPECT_LT(batch.positions.back(), 8192);
    EXPECT_LE(jumps(batch, 0, 256), 3);
    last += batch.positions.back();
    far += batch.positions.back() > 7000;
  }
  // The largest of three uniform draws.
  EXPECT_NEAR(static_cast<double>(last) / static_cast<double>(steps), 255 + 7936 * 0.75, 300);
  EXPECT_GT(far, 40);
}

// Beside a key whose logit is c + log n, which takes half of the weight among n whose e^logit has
// the mean e^c: among m of them with corrected logits it takes half, too.
TEST(SpreadWindows, TheCorrectionKeepsWhatTakesHalfOfTheWeight) {
  const SpreadWindows spread(rows_of({512}, 512), {.context = 8192, .seed = 3});
  const Batch batch = spread.train(whole_batch(0, 1));
  ASSERT_EQ(batch.attention_scale.size(), 512U);
  for (const size_t i : {size_t{1}, size_t{300}, size_t{511}}) {
    const auto n = static_cast<double>(batch.positions[i] + 1), m = static_cast<double>(i + 1);
    const double logit = std::log(n) * static_cast<double>(batch.attention_scale[i]);
    EXPECT_NEAR(std::exp(logit) / (std::exp(logit) + m), 0.5, 1e-5);
  }
  EXPECT_LT(batch.attention_scale[511], 0.95);
  EXPECT_EQ(batch.attention_scale[0], 1);
  const auto scale = [](double correction) {
    const SpreadOptions options{.context = 8192, .correction = correction, .seed = 3};
    return SpreadWindows(rows_of({512}, 512), options).train(whole_batch(0, 1)).attention_scale;
  };
  EXPECT_TRUE(scale(0).empty());
  EXPECT_NEAR(std::pow(scale(0.5)[511], 2), scale(1)[511], 1e-6);
}

TEST(SpreadWindows, DocumentsAreSpreadOnTheirOwnAndRowsAreTheSameHoweverABatchIsCut) {
  const SpreadWindows spread(rows_of({200, 1, 99, 300}, 300), {.context = 1000, .seed = 3});
  const Batch whole = spread.train(whole_batch(5, 2));
  for (int64_t row = 0; row < 2; ++row) {
    for_documents(whole, row, [&](int64_t begin, int64_t size) {
      EXPECT_EQ(whole.positions[static_cast<size_t>(begin)], 0);
      EXPECT_LE(jumps(whole, begin, size), 1);
    });
    const Batch one = spread.train({.step = 5, .batch_rows = 2, .first_row = row, .rows = 1});
    EXPECT_TRUE(std::equal(one.positions.begin(), one.positions.end(),
                           whole.positions.begin() + row * 300));
  }
  EXPECT_NE(spread.train(whole_batch(6, 2)).positions, whole.positions);
}

TEST(SpreadWindows, RefusesWhatDoesNotFit) {
  const auto whole = rows_of({20}, 10);
  EXPECT_TRUE(says(message_of([&] { SpreadWindows(whole, {.context = 9}); }), "rows of 10"));
  EXPECT_TRUE(
      says(message_of([&] { SpreadWindows(whole, {.context = 90, .parts = 1}); }), "at least 2"));
  EXPECT_TRUE(
      says(message_of([&] { SpreadWindows(whole, {.context = 90, .correction = 2}); }), "0 to 1"));
}

}  // namespace
}  // namespace tempera::data
