#include "tempera/data/echoed_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "tempera/base/testing.h"
#include "tempera/data/testing_rows.h"

namespace tempera::data {
namespace {

constexpr EchoOptions kOptions{.share = 0.1, .length = 16, .weight = 3, .seed = 5};

// Of rows whose tokens count up: how far before its copy each span begins, by the copy's place.
std::map<int64_t, int64_t> echoes_of(const Batch& batch, int64_t row) {
  std::map<int64_t, int64_t> found;
  const int64_t* tokens = batch.tokens.data() + row * batch.length;
  for (int64_t i = 1; i < batch.length; ++i)
    if (tokens[i] < tokens[i - 1]) found[i] = i - (tokens[i] - tokens[0]);
  return found;
}

TEST(EchoedText, SpansComeAgainAndTheirKnownTokensCountMore) {
  const auto whole = rows_of({4000}, 4000);
  const Batch before = whole->train(whole_batch(0, 1));
  const Batch after = EchoedText(whole, kOptions).train(whole_batch(0, 1));
  std::vector<int64_t> tokens = before.tokens;
  std::vector<int64_t> targets = before.targets;
  std::vector<float> shares(tokens.size(), 1);
  int64_t count = 0;
  for (size_t to = 1; to < tokens.size(); ++to) {
    if (after.shares[to - 1] != 0) continue;
    // A span of 16 begins here: four tokens that nothing tells, twelve that are known.
    const auto span = std::span(after.tokens).subspan(to, 16);
    EXPECT_FALSE(std::ranges::search(std::span(after.tokens).first(to), span).empty())
        << "the span at " << to << " stands nowhere before";
    for (size_t k = 0; k < 16; ++k) {
      tokens[to + k] = targets[to + k - 1] = span[k];
      shares[to + k - 1] = k < 4 ? 0.0F : 3.0F;
    }
    shares[to + 15] = 0;
    to += 16;
    ++count;
  }
  EXPECT_NEAR(static_cast<double>(count * 16), 400, 40);
  EXPECT_EQ(after.tokens, tokens) << "the rest is as it was";
  EXPECT_EQ(after.targets, targets);
  EXPECT_EQ(after.shares, shares);
}

// A row of two spans has room for one echo, at its end.
TEST(EchoedText, NothingTellsWhatStandsBehindTheRowEither) {
  const EchoedText echoed(rows_of({4000}, 32), {.share = 0.5, .length = 16, .seed = 5});
  const Batch batch = echoed.train(whole_batch(0, 4));
  for (int64_t row = 0; row < 4; ++row) {
    const auto shares = std::span(batch.shares).subspan(static_cast<size_t>(row) * 32, 32);
    ASSERT_EQ(shares[30], 5) << "the last token of the echo";
    EXPECT_EQ(shares[31], 0);
  }
}

TEST(EchoedText, DistancesReachOverTheWholeRow) {
  const EchoedText echoed(rows_of({2000}, 2000), {.share = 0.008, .length = 16, .seed = 5});
  int64_t near = 0, far = 0, all = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    const Batch batch = echoed.train(whole_batch(step, 1));
    for (const auto& [place, distance] : echoes_of(batch, 0)) {
      ++all;
      near += distance < 512;
      far += distance > 1488;
    }
  }
  EXPECT_GT(all, 250);
  EXPECT_NEAR(static_cast<double>(near) / static_cast<double>(all), 0.25, 0.08);
  EXPECT_NEAR(static_cast<double>(far) / static_cast<double>(all), 0.25, 0.08);
}

TEST(EchoedText, ARowIsTheSameHoweverABatchIsCut) {
  const EchoedText echoed(rows_of({9000}, 300), kOptions);
  const Batch whole = echoed.train(whole_batch(7, 4));
  for (int64_t row = 0; row < 4; ++row) {
    const Batch one = echoed.train({.step = 7, .batch_rows = 4, .first_row = row, .rows = 1});
    const auto at = [&](const auto& values) { return values.begin() + row * 300; };
    EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), at(whole.tokens)));
    EXPECT_TRUE(std::equal(one.shares.begin(), one.shares.end(), at(whole.shares)));
  }
  EXPECT_NE(echoed.train(whole_batch(8, 4)).shares, whole.shares);
  EchoOptions other = kOptions;
  other.seed = 6;
  EXPECT_NE(EchoedText(rows_of({9000}, 300), other).train(whole_batch(7, 4)).shares, whole.shares);
}

TEST(EchoedText, StaysInItsDocumentAndStopsInTime) {
  EchoOptions options = kOptions;
  options.share = 0.4;
  options.until = 2;
  const auto whole = rows_of({100, 100, 20, 80}, 300);
  const EchoedText echoed(whole, options);
  for (uint64_t step = 0; step < 2; ++step) {
    const Batch before = whole->train(whole_batch(step, 1)),
                batch = echoed.train(whole_batch(step, 1));
    EXPECT_NE(batch.tokens, before.tokens);
    for_documents(batch, 0, [&](int64_t begin, int64_t size) {
      for (int64_t i = begin; i < begin + size; ++i)
        EXPECT_LT(batch.tokens[static_cast<size_t>(i)], i - begin + 1) << "from this document";
      const auto shares =
          std::span(batch.shares).subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
      EXPECT_EQ(std::ranges::all_of(shares, [](float share) { return share == 1; }), size < 32)
          << "where there is room";
    });
  }
  EXPECT_EQ(echoed.train(whole_batch(2, 1)).tokens, whole->train(whole_batch(2, 1)).tokens);
  EXPECT_TRUE(echoed.train(whole_batch(2, 1)).shares.empty());
}

TEST(EchoedText, HeldOutTextIsAsItIs) {
  const auto whole = rows_of({4000}, 300, 0.3);
  EchoOptions options = kOptions;
  options.share = 0.5;
  const Batch batch = EchoedText(whole, options).held_out(0, 0, 2);
  EXPECT_EQ(batch.tokens, whole->held_out(0, 0, 2).tokens);
  EXPECT_TRUE(batch.shares.empty());
}

TEST(EchoedText, RefusesWhatIsNoShareAndNoLength) {
  const auto whole = rows_of({20}, 10);
  EXPECT_TRUE(says(message_of([&] { EchoedText(whole, {.share = 0.6}); }), "0.6"));
  EXPECT_TRUE(says(message_of([&] { EchoedText(whole, {.length = 0}); }), "above 0"));
}

}  // namespace
}  // namespace tempera::data
