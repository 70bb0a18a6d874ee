#include "tempera/data/masked_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tempera/data/testing.h"
#include "tempera/data/text_dataset.h"

namespace tempera::data {
namespace {

const text::SequenceTokens& byte_ids() {
  static const text::SequenceTokens ids{text::ByteTokenizer()};
  return ids;
}

// Documents of 20 bytes, each with the end behind.
std::shared_ptr<const TextDataset> text_of(int32_t documents, int64_t length) {
  std::vector<std::vector<int32_t>> list;
  for (int32_t i = 0; i < documents; ++i) {
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < 20; ++t) ids.push_back((7 * i + t) % 256);
    ids.push_back(text::ByteTokenizer::kEndOfText);
    list.push_back(ids);
  }
  std::vector<TokenShard> shards;
  shards.push_back(TokenShard::parse(shard_bytes(list), "memory"));
  return std::make_shared<TextDataset>(std::make_shared<Corpus>(std::move(shards), "memory"),
                                       TextOptions{.length = length, .seed = 3, .held_out = 0.2});
}

TEST(MaskedDataset, HidesFifteenPercentInThreeWays) {
  const auto text = text_of(400, 64);
  const MaskedDataset data(text, byte_ids(), 5);
  std::map<std::string, int64_t> ways;
  int64_t all = 0;
  for (uint64_t step = 0; step < 40; ++step) {
    const auto request = whole_batch(step, 8);
    const Batch plain = text->train(request), batch = data.train(request);
    EXPECT_EQ(batch.document_lengths, plain.document_lengths);
    for (size_t i = 0; i < plain.tokens.size(); ++i) {
      const int64_t token = plain.tokens[i];
      all += token < 256 ? 1 : 0;
      if (batch.targets[i] == kIgnored) {
        EXPECT_EQ(batch.tokens[i], token);
        continue;
      }
      EXPECT_EQ(batch.targets[i], token);
      EXPECT_LT(token, 256);  // never a special one
      ways[batch.tokens[i] == byte_ids().mask ? "masked"
           : batch.tokens[i] == token         ? "kept"
                                              : "replaced"] += 1;
      EXPECT_TRUE(batch.tokens[i] < 256 || batch.tokens[i] == byte_ids().mask);
    }
  }
  const auto total = static_cast<double>(ways["masked"] + ways["kept"] + ways["replaced"]);
  EXPECT_NEAR(total / static_cast<double>(all), 0.15, 0.005);
  EXPECT_NEAR(static_cast<double>(ways["masked"]) / total, 0.8, 0.03);
  EXPECT_NEAR(static_cast<double>(ways["kept"]) / total, 0.1, 0.03);
}

TEST(MaskedDataset, AStepIsTheSameWhoeverAsks) {
  const auto text = text_of(400, 32);
  const MaskedDataset data(text, byte_ids(), 5), again(text, byte_ids(), 5),
      other(text, byte_ids(), 6);
  const Batch batch = data.train(whole_batch(9, 6));
  EXPECT_EQ(again.train(whole_batch(9, 6)).tokens, batch.tokens);
  EXPECT_NE(other.train(whole_batch(9, 6)).tokens, batch.tokens);
  const Batch part = data.train({.step = 9, .batch_rows = 6, .first_row = 4, .rows = 2});
  EXPECT_TRUE(std::ranges::equal(part.targets, std::span(batch.targets).subspan(4 * 32, 2 * 32)));
  // Held-out rows are the same for every seed and however they are asked for.
  const Batch held = data.held_out(0, 0, 4);
  EXPECT_EQ(other.held_out(0, 0, 4).tokens, held.tokens);
  EXPECT_TRUE(std::ranges::equal(other.held_out(0, 2, 2).targets,
                                 std::span(held.targets).subspan(2 * 32, 2 * 32)));
}

TEST(SpanDataset, WhatIsTakenOutIsWhatIsWritten) {
  const auto text = text_of(400, 100);
  const SpanDataset data(text, byte_ids(), 5);
  std::map<size_t, int64_t> first_spans;
  for (uint64_t step = 0; step < 20; ++step) {
    const auto request = whole_batch(step, 4);
    const Batch plain = text->train(request), batch = data.train(request);
    ASSERT_EQ(batch.source_length, 100 - 15 + 5 + 1);
    ASSERT_EQ(batch.length, 15 + 5 + 1);
    for (size_t row = 0; row < 4; ++row) {
      const std::span source(batch.source.data() + row * 91, 91);
      const std::span targets(batch.targets.data() + row * 21, 21);
      // The text comes back when each sentinel is replaced by what was written behind it.
      std::map<int64_t, std::vector<int64_t>> spans;
      int64_t sentinel = -1;
      for (size_t t = 0; t < 21; ++t) {
        EXPECT_EQ(batch.tokens[row * 21 + t], t == 0 ? byte_ids().start : targets[t - 1]);
        if (targets[t] >= 259)
          sentinel = targets[t];
        else if (t + 1 < 21)
          spans[sentinel].push_back(targets[t]);
      }
      EXPECT_EQ(targets[20], byte_ids().end);
      std::vector<int64_t> back;
      for (const int64_t token : source.first(90))
        if (token >= 259)
          back.insert(back.end(), spans[token].begin(), spans[token].end());
        else
          back.push_back(token);
      EXPECT_TRUE(std::ranges::equal(back, std::span(plain.tokens).subspan(row * 100, 100)));
      EXPECT_EQ(spans.size(), 5U);
      first_spans[spans[259].size()] += 1;
    }
  }
  EXPECT_GT(first_spans.size(), 4U);  // of many lengths
}

TEST(SpanDataset, ShortRowsAreRefused) {
  EXPECT_THROW(SpanDataset(text_of(10, 8), byte_ids(), 0), Error);
  EXPECT_EQ(SpanDataset(text_of(10, 10), byte_ids(), 0).train(whole_batch(0, 1)).length, 2 + 1 + 1);
}

// What is hidden comes from the held-out part of the text, whatever the length: here 5 tokens.
TEST(HidingDataset, HeldOutRowsAreThoseOfTheText) {
  std::vector<int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<TokenShard> shards;
  shards.push_back(TokenShard::parse(shard_bytes({ids}), "memory"));
  const auto corpus = std::make_shared<Corpus>(std::move(shards), "memory");
  for (const int64_t length : {10, 40, 95}) {
    const auto text = std::make_shared<TextDataset>(
        corpus, TextOptions{.length = length, .seed = 3, .held_out = 0.05});
    const MaskedDataset masked(text, byte_ids(), 5);
    const SpanDataset spans(text, byte_ids(), 5);
    for (const Dataset* data :
         {static_cast<const Dataset*>(&masked), static_cast<const Dataset*>(&spans)}) {
      ASSERT_EQ(data->held_out_sets().at(0).rows, 1);
      const Batch held = data->held_out(0, 0, 1);
      for (const int64_t target : held.targets)
        EXPECT_TRUE(target == kIgnored || target >= 95) << target;
      for (uint64_t step = 0; step < 10; ++step)
        for (const int64_t target : data->train(whole_batch(step, 1)).targets)
          EXPECT_TRUE(target < 95 || target >= 100) << target;
    }
    EXPECT_EQ(spans.held_out(0, 0, 1).source.size() + spans.held_out(0, 0, 1).targets.size(),
              5U + 4U)
        << "a sentinel and an end on either side";
  }
}

}  // namespace
}  // namespace tempera::data
