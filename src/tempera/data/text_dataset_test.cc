#include "tempera/data/text_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tempera/data/testing.h"

namespace tempera::data {
namespace {

std::shared_ptr<const Corpus> corpus_of(const std::vector<std::vector<int32_t>>& documents,
                                        int64_t vocabulary = 100000) {
  std::vector<TokenShard> shards;
  shards.push_back(TokenShard::parse(shard_bytes(documents, "t", vocabulary), "memory"));
  return std::make_shared<Corpus>(std::move(shards), "memory");
}

// One document of the ids 0, 1, 2, ...: a token tells its place.
std::shared_ptr<const Corpus> counting_tokens(int32_t size) {
  std::vector<int32_t> ids(static_cast<size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return corpus_of({ids});
}

TEST(TextDataset, PacksDocumentsAndMasksTheirEnds) {
  const TextDataset data(corpus_of({{10, 11, 12}, {20, 21}, {30, 31, 32, 33, 34, 35}}),
                         {.length = 4, .seed = 0, .held_out = 0});
  EXPECT_EQ(data.train_rows(), 2);
  std::map<int64_t, Batch> rows;  // by their first token
  for (uint64_t step = 0; step < 2; ++step) {
    Batch batch = data.train(whole_batch(step, 1));
    rows.emplace(batch.tokens[0], std::move(batch));
  }
  ASSERT_EQ(rows.size(), 2U);
  const Batch& first = rows.at(10);
  EXPECT_EQ(first.tokens, (std::vector<int64_t>{10, 11, 12, 20}));
  EXPECT_EQ(first.targets, (std::vector<int64_t>{11, 12, kIgnored, 21}));
  EXPECT_EQ(first.documents, 2);
  EXPECT_EQ(first.document_lengths, (std::vector<int64_t>{3, 1}));
  const Batch& second = rows.at(21);
  EXPECT_EQ(second.tokens, (std::vector<int64_t>{21, 30, 31, 32}));
  EXPECT_EQ(second.targets, (std::vector<int64_t>{kIgnored, 31, 32, 33}));
  EXPECT_EQ(second.document_lengths, (std::vector<int64_t>{1, 3}));
}

TEST(TextDataset, DocumentLengthsAreFilledUpWithZeros) {
  const TextDataset data(corpus_of({{1}, {2}, {3}, {4, 5, 6}}),
                         {.length = 3, .seed = 0, .held_out = 0});
  const Batch batch = data.train(whole_batch(0, 2));
  ASSERT_EQ(batch.documents, 3);
  const bool first = batch.tokens[0] == 1;
  EXPECT_EQ(batch.document_lengths, first ? (std::vector<int64_t>{1, 1, 1, 3, 0, 0})
                                          : (std::vector<int64_t>{3, 0, 0, 1, 1, 1}));
  const TextDataset single(counting_tokens(12), {.length = 3, .seed = 0, .held_out = 0});
  EXPECT_EQ(single.train(whole_batch(0, 2)).documents, 0);
}

TEST(TextDataset, AnEpochSeesEveryTokenOnceAndTheNextInAnotherOrder) {
  const TextDataset data(counting_tokens(1007), {.length = 10, .seed = 3, .held_out = 0});
  ASSERT_EQ(data.train_rows(), 100);
  std::vector<std::vector<int64_t>> orders;
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> order;
    for (uint64_t step = 0; step < 25; ++step) {
      const Batch batch = data.train(whole_batch(epoch * 25 + step, 4));
      for (size_t row = 0; row < 4; ++row) {
        order.push_back(batch.tokens[row * 10]);
        for (size_t t = 0; t < 10; ++t)
          EXPECT_EQ(batch.targets[row * 10 + t], batch.tokens[row * 10 + t] + 1);
      }
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100U);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  const TextDataset other(counting_tokens(1007), {.length = 10, .seed = 4, .held_out = 0});
  EXPECT_NE(other.train(whole_batch(0, 4)).tokens, data.train(whole_batch(0, 4)).tokens);
}

TEST(TextDataset, RowsDoNotDependOnTheNumberOfWorkersNorOnWhatWasReadBefore) {
  const TextDataset data(counting_tokens(990), {.length = 10, .seed = 3, .held_out = 0});
  for (const uint64_t step :
       {30ULL, 2ULL, 12ULL}) {  // step 12 crosses from one epoch into the next
    const Batch whole = data.train(whole_batch(step, 8));
    std::vector<int64_t> joined;
    for (int64_t worker = 0; worker < 4; ++worker) {
      const TextDataset fresh(counting_tokens(990), {.length = 10, .seed = 3, .held_out = 0});
      const Batch part =
          fresh.train({.step = step, .batch_rows = 8, .first_row = 2 * worker, .rows = 2});
      joined.insert(joined.end(), part.tokens.begin(), part.tokens.end());
    }
    EXPECT_EQ(joined, whole.tokens);
  }
  // The same samples in batches of another size.
  EXPECT_EQ(data.train(whole_batch(3, 4)).tokens,
            data.train({.step = 1, .batch_rows = 8, .first_row = 4, .rows = 4}).tokens);
}

TEST(TextDataset, FewDocumentsHoldOutTheTail) {
  const TextDataset data(counting_tokens(1000), {.length = 10, .seed = 1, .held_out = 0.1});
  EXPECT_EQ(data.train_tokens(), 900);
  EXPECT_EQ(data.held_out_tokens(), 100);
  ASSERT_EQ(data.held_out_sets().size(), 1U);
  EXPECT_EQ(data.held_out_sets()[0].rows, 10);
  EXPECT_EQ(data.held_out_sets()[0].length, 10);
  const Batch held = data.held_out(0, 2, 2);
  EXPECT_EQ(held.tokens.front(), 920);
  EXPECT_EQ(held.tokens.back(), 939);
  EXPECT_EQ(held.targets.back(), 940);
  EXPECT_EQ(data.held_out(0, 9, 1).targets.back(), kIgnored);
  for (uint64_t step = 0; step < 90; ++step) {
    const Batch batch = data.train(whole_batch(step, 1));
    ASSERT_LT(batch.tokens.back(), 900);
    // Not even the target of the last position looks into what is held out.
    ASSERT_EQ(batch.targets.back(),
              batch.tokens.back() == 899 ? kIgnored : batch.tokens.back() + 1);
  }
}

TEST(TextDataset, ManyDocumentsAreHeldOutWhole) {
  std::vector<std::vector<int32_t>> documents;
  for (int32_t i = 0; i < 500; ++i) documents.emplace_back(static_cast<size_t>(5 + i % 7), i);
  const auto corpus = corpus_of(documents);
  const TextDataset data(corpus, {.length = 8, .seed = 1, .held_out = 0.1});
  const TextDataset other_seed(corpus, {.length = 8, .seed = 2, .held_out = 0.1});
  EXPECT_EQ(data.train_tokens() + data.held_out_tokens(), corpus->tokens());
  EXPECT_NEAR(static_cast<double>(data.held_out_tokens()) / static_cast<double>(corpus->tokens()),
              0.1, 0.01);
  const int64_t rows = data.held_out_sets()[0].rows;
  const Batch held = data.held_out(0, 0, rows);
  EXPECT_EQ(other_seed.held_out(0, 0, rows).tokens, held.tokens);
  const std::set<int64_t> held_documents(held.tokens.begin(), held.tokens.end());
  EXPECT_LT(*held_documents.begin(), 100) << "chosen from all over the corpus";
  EXPECT_GT(*held_documents.rbegin(), 400);
  for (uint64_t step = 0; step < static_cast<uint64_t>(data.train_rows()); ++step)
    for (const int64_t token : data.train(whole_batch(step, 1)).tokens)
      ASSERT_FALSE(held_documents.contains(token));
  // Targets never cross from one document to another, also where the documents between were taken
  // out.
  for (size_t i = 0; i < held.tokens.size(); ++i) {
    if (held.targets[i] != kIgnored) {
      ASSERT_EQ(held.targets[i], held.tokens[i]);
    }
  }
  int64_t sum = 0;
  for (const int64_t length : held.document_lengths) sum += length;
  EXPECT_EQ(sum, rows * 8);
}

TEST(TextDataset, OneHugeDocumentAmongManyDoesNotSwallowTheTraining) {
  std::vector<std::vector<int32_t>> documents(200, std::vector<int32_t>(1, 1));
  documents.emplace_back(10000, 2);
  const TextDataset data(corpus_of(documents), {.length = 50, .seed = 1, .held_out = 0.1});
  EXPECT_EQ(data.held_out_tokens(), 1020);
  EXPECT_EQ(data.train_tokens(), 9180);
}

TEST(TextDataset, AHeldOutPartShorterThanARowIsOneRow) {
  const TextDataset data(counting_tokens(100), {.length = 40, .seed = 1, .held_out = 0.05});
  EXPECT_EQ(data.train_tokens(), 95);
  ASSERT_EQ(data.held_out_sets()[0].rows, 1);
  EXPECT_EQ(data.held_out_sets()[0].length, 5);
  const Batch held = data.held_out(0, 0, 1);
  EXPECT_EQ(held.length, 5);
  EXPECT_EQ(held.tokens, (std::vector<int64_t>{95, 96, 97, 98, 99}));
  EXPECT_EQ(held.targets, (std::vector<int64_t>{96, 97, 98, 99, kIgnored}));
  EXPECT_EQ(TextDataset(counting_tokens(3), {.length = 1, .seed = 1, .held_out = 0.01})
                .held_out(0, 0, 2)
                .targets,
            (std::vector<int64_t>{2, kIgnored}))
      << "the least that can be measured";
}

// Documents of all sizes, in which no token occurs twice.
std::shared_ptr<const Corpus> counting_documents(int32_t count, int32_t longest) {
  std::vector<std::vector<int32_t>> documents;
  int32_t next = 0;
  for (int32_t i = 0; i < count; ++i) {
    documents.emplace_back(static_cast<size_t>(1 + i * 37 % longest));
    std::iota(documents.back().begin(), documents.back().end(), next);
    next = documents.back().back() + 1;
  }
  return corpus_of(documents);
}

void add_to(std::set<int64_t>& seen, const Batch& batch) {
  seen.insert(batch.tokens.begin(), batch.tokens.end());
  for (const int64_t target : batch.targets)
    if (target != kIgnored) seen.insert(target);
}

// Whatever length trained and whatever length measures: a stage, an evaluation with another window,
// a fine-tuning of the same text.
TEST(TextDataset, NoHeldOutTokenIsEverTrainedOn) {
  for (const auto& corpus : {counting_tokens(3001), counting_documents(99, 60),
                             counting_documents(400, 17), counting_documents(150, 400)}) {
    for (const double share : {0.003, 0.05, 0.3, 0.9}) {
      std::set<int64_t> trained, measured;
      std::set<std::pair<int64_t, int64_t>> sizes;
      for (const int64_t length : {1, 7, 64, 150, 256, 1000}) {
        const TextOptions options{.length = length, .seed = 5, .held_out = share};
        if (split_text(*corpus, share).train.tokens() < length) {
          EXPECT_THROW(TextDataset(corpus, options), Error);
          continue;
        }
        const TextDataset data(corpus, options);
        sizes.emplace(data.train_tokens(), data.held_out_tokens());
        for (uint64_t row = 0; row < static_cast<uint64_t>(data.train_rows()); ++row)
          add_to(trained, data.train(whole_batch(row, 1)));
        add_to(measured, data.held_out(0, 0, data.held_out_sets()[0].rows));
      }
      EXPECT_EQ(sizes.size(), 1U) << "the same split at every length, share " << share;
      std::vector<int64_t> both;
      std::ranges::set_intersection(trained, measured, std::back_inserter(both));
      EXPECT_TRUE(both.empty()) << both.size() << " tokens of share " << share;
      EXPECT_FALSE(measured.empty());
    }
  }
}

TEST(TextDataset, WhatCannotWorkIsSaidAtOnce) {
  const auto message = [](int32_t size, const TextOptions& options) {
    return message_of([&] { TextDataset(counting_tokens(size), options); });
  };
  EXPECT_NE(message(99, {.length = 95, .seed = 0, .held_out = 0.05})
                .find("has 94 tokens to train on (5 are held out), and a context of 95"),
            std::string::npos);
  EXPECT_NE(message(2, {.length = 1, .seed = 0, .held_out = 0.05}).find("2 tokens cannot be split"),
            std::string::npos);
  EXPECT_NE(message(49, {.length = 50, .seed = 0, .held_out = 0}).find("too small"),
            std::string::npos);
  EXPECT_NE(message(49, {.length = 0, .seed = 0, .held_out = 0}).find("rows of 0"),
            std::string::npos);
  EXPECT_NE(message(49, {.length = 5, .seed = 0, .held_out = 1}).find("held-out share"),
            std::string::npos);
  EXPECT_NE(message(49, {.length = 5, .seed = 0, .held_out = -0.1}).find("held-out share"),
            std::string::npos);

  const TextDataset data(counting_tokens(100), {.length = 10, .seed = 0, .held_out = 0});
  EXPECT_TRUE(data.held_out_sets().empty());
  EXPECT_THROW(data.held_out(0, 0, 1), Error);
  const auto fits = [&](const ModelLimits& model) {
    return message_of([&] { check_fits(data, model); });
  };
  EXPECT_EQ(fits({.vocabulary = 100000, .classes = 100000, .max_length = 10}), "");
  EXPECT_EQ(fits({.vocabulary = 100000, .classes = 100000, .max_length = 0}), "");
  EXPECT_NE(fits({.vocabulary = 259, .classes = 259, .max_length = 0}).find("vocabulary mismatch"),
            std::string::npos);
  EXPECT_NE(fits({.vocabulary = 100000, .classes = 16, .max_length = 0}).find("100000 classes"),
            std::string::npos);
  EXPECT_NE(fits({.vocabulary = 100000, .classes = 100000, .max_length = 9}).find("at most 9"),
            std::string::npos);
}

TEST(TextDataset, GoldenValues) {
  const TextDataset data(counting_tokens(1000), {.length = 10, .seed = 42, .held_out = 0.1});
  std::vector<int64_t> firsts;
  for (uint64_t step = 0; step < 4; ++step)
    firsts.push_back(data.train(whole_batch(step * 30, 1)).tokens[0]);
  EXPECT_EQ(firsts, (std::vector<int64_t>{300, 660, 440, 390}));
}

}  // namespace
}  // namespace tempera::data
