#include "tempera/data/generator.h"

#include <gtest/gtest.h>
#include <time.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/data/checksum.h"

namespace tempera::data {
namespace {

std::vector<int64_t> row_of(const std::vector<int64_t>& values, int64_t row, int64_t columns) {
  return {values.begin() + row * columns, values.begin() + (row + 1) * columns};
}

// What every generator promises, by being registered.
class EveryGenerator : public testing::TestWithParam<std::string> {};

TEST_P(EveryGenerator, RowsDependOnSeedStepAndRowAlone) {
  const auto data = make_generator(GetParam(), {}, 5);
  const Batch later = data->train(whole_batch(7, 8));
  const Batch whole = data->train(whole_batch(3, 8));
  const Batch part = data->train({.step = 3, .batch_rows = 8, .first_row = 5, .rows = 2});
  ASSERT_EQ(part.length, whole.length);
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(row_of(part.tokens, row, part.length), row_of(whole.tokens, row + 5, whole.length));
    EXPECT_EQ(row_of(part.targets, row, part.length), row_of(whole.targets, row + 5, whole.length));
    EXPECT_EQ(row_of(part.answer_positions, row, part.questions),
              row_of(whole.answer_positions, row + 5, whole.questions));
  }
  EXPECT_EQ(make_generator(GetParam(), {}, 5)->train(whole_batch(7, 8)).tokens, later.tokens);
  EXPECT_NE(whole.tokens, later.tokens);
  EXPECT_NE(make_generator(GetParam(), {}, 6)->train(whole_batch(7, 8)).tokens, later.tokens);
}

TEST_P(EveryGenerator, HeldOutSetsAreFixedAndSplitAnyhow) {
  const auto one = make_generator(GetParam(), {}, 1);
  const auto two = make_generator(GetParam(), {}, 2);
  ASSERT_FALSE(one->held_out_sets().empty());
  for (size_t set = 0; set < one->held_out_sets().size(); ++set) {
    const HeldOutSet& info = one->held_out_sets()[set];
    const Batch whole = one->held_out(set, 0, info.rows);
    EXPECT_EQ(whole.length, info.length);
    EXPECT_EQ(two->held_out(set, 0, info.rows).tokens, whole.tokens);
    const Batch part = two->held_out(set, info.rows - 1, 1);
    EXPECT_EQ(part.tokens, row_of(whole.tokens, info.rows - 1, whole.length));
    EXPECT_THROW(one->held_out(set, info.rows, 1), Error);
  }
  EXPECT_THROW(one->held_out(one->held_out_sets().size(), 0, 1), Error);
}

TEST_P(EveryGenerator, TargetsAreTheNextTokensAndTheEvidenceIsThere) {
  const auto data = make_generator(GetParam(), {}, 9);
  std::set<int64_t> classes;
  for (uint64_t step = 0; step < 40; ++step) {
    const Batch batch = data->train(whole_batch(step, 4));
    ASSERT_LE(batch.length, data->train_length());
    ASSERT_GT(batch.questions, 0);
    for (const int64_t token : batch.tokens) ASSERT_TRUE(token >= 0 && token < data->vocabulary());
    int64_t scored = 0;
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] == kIgnored) continue;
      ASSERT_TRUE(batch.targets[i] >= 0 && batch.targets[i] < data->classes());
      ASSERT_EQ(batch.targets[i], batch.tokens[i + 1]);
      classes.insert(batch.targets[i]);
      ++scored;
    }
    EXPECT_EQ(scored, batch.rows * batch.questions);
    for (int64_t i = 0; i < batch.rows * batch.questions; ++i) {
      const int64_t begin = i / batch.questions * batch.length;
      const int64_t question = batch.question_positions[static_cast<size_t>(i)];
      const int64_t answer = batch.answer_positions[static_cast<size_t>(i)];
      ASSERT_LE(answer, question) << "a causal model must see it";
      EXPECT_EQ(batch.tokens[static_cast<size_t>(begin + answer)],
                batch.targets[static_cast<size_t>(begin + question)]);
    }
  }
  EXPECT_EQ(static_cast<int64_t>(classes.size()), data->classes()) << "a class never comes up";
}

TEST_P(EveryGenerator, RejectsRowsOutsideTheBatch) {
  const auto data = make_generator(GetParam(), {}, 1);
  EXPECT_THROW(data->train(whole_batch(0, 0)), Error);
  EXPECT_THROW(data->train({.step = 0, .batch_rows = 4, .first_row = 3, .rows = 2}), Error);
  EXPECT_THROW(data->train({.step = 0, .batch_rows = 4, .first_row = -1, .rows = 2}), Error);
}

TEST_P(EveryGenerator, BadOptionsAreErrorsBeforeAnything) {
  const std::string name = GetParam();
  EXPECT_NE(message_of<UsageError>([&] {
              make_generator(name, {{"test-mx", int64_t{64}}}, 1);
            }).find("test-max"),
            std::string::npos);
  EXPECT_THROW(make_generator(name, {{"train-max", int64_t{-1}}}, 1), UsageError);
  EXPECT_THROW(make_generator(name, {{"train-max", std::string("many")}}, 1), UsageError);
  const std::string order = message_of<UsageError>([&] {
    make_generator(name, {{"train-max", int64_t{64}}, {"test-max", int64_t{8}}}, 1);
  });
  EXPECT_NE(order.find("'train-max' is 64"), std::string::npos) << order;
}

TEST_P(EveryGenerator, AnySizeCanBeHeldOut) {
  const auto data = make_generator(GetParam(), {}, 1);
  const auto& second = data->held_out_sets()[1];
  const auto same = make_generator_of_size(GetParam(), {}, second.size);
  ASSERT_EQ(same->held_out_sets().size(), 1U);
  EXPECT_EQ(same->held_out(0, 0, second.rows).tokens, data->held_out(1, 0, second.rows).tokens);
  const auto small = make_generator_of_size(GetParam(), {}, 3);
  EXPECT_EQ(small->held_out_sets()[0].size, 3);
  EXPECT_LT(small->held_out_sets()[0].length, data->held_out_sets()[0].length);
  EXPECT_THROW(make_generator_of_size(GetParam(), {}, 0), UsageError);
}

INSTANTIATE_TEST_SUITE_P(
    Data, EveryGenerator,
    [] {
      std::vector<std::string> names;
      for (const auto& entry : generators()) names.push_back(entry.name);
      return testing::ValuesIn(names);
    }(),
    [](const auto& test) { return test.param; });

TEST(Generators, UnknownNamesGiveTheNearest) {
  EXPECT_NE(message_of<UsageError>([] { find_generator("fonebook"); }).find("phonebook"),
            std::string::npos);
}

TEST(Recall, PairsStandAmongDistractors) {
  const auto data = make_generator("recall", {}, 2);
  const Batch batch = data->held_out(4, 0, 16);  // 1,024 distractors
  ASSERT_EQ(batch.length, 1024 + 4 * 16);
  std::map<int64_t, int> places;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto tokens = row_of(batch.tokens, row, batch.length);
    std::set<int64_t> keys;
    int64_t noise = 0;
    for (int64_t t = 0; t < 1024 + 2 * 16; ++t) {
      const int64_t token = tokens[static_cast<size_t>(t)];
      noise += token >= 64 + 512 ? 1 : 0;
      if (token >= 64 && token < 64 + 512) {
        EXPECT_TRUE(keys.insert(token).second);
        EXPECT_LT(tokens[static_cast<size_t>(t + 1)], 64);
        ++places[t / 264];
      }
    }
    EXPECT_EQ(noise, 1024);
    EXPECT_EQ(keys.size(), 16U);
  }
  for (const auto& [quarter, count] : places) EXPECT_NEAR(count, 64, 5 * 7) << quarter;
}

TEST(Passkey, TheKeyStandsAtAnyDepthAndIsAskedAtTheEnd) {
  const auto data =
      make_generator("passkey", {{"train-min", int64_t{4}}, {"train-max", int64_t{4}}}, 2);
  std::set<int64_t> depths;
  for (uint64_t step = 0; step < 100; ++step) {
    const Batch batch = data->train(whole_batch(step, 1));
    ASSERT_EQ(batch.length, 4 + 2 * 6);
    const int64_t depth = batch.answer_positions[0] - 1;
    depths.insert(depth);
    EXPECT_EQ(batch.tokens[static_cast<size_t>(depth)], 10);
    EXPECT_EQ(batch.tokens[10], 11);
    EXPECT_EQ(batch.question_positions[0], 10);
    int64_t noise = 0;
    for (const int64_t token : batch.tokens) noise += token >= 12 ? 1 : 0;
    EXPECT_EQ(noise, 4);
  }
  EXPECT_EQ(depths, (std::set<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Copy, RepeatsTheSymbols) {
  const auto data = make_generator("copy", {}, 2);
  const Batch batch = data->held_out(0, 0, 2);
  ASSERT_EQ(batch.length, 65);
  for (size_t row = 0; row < 2; ++row)
    for (size_t i = 0; i < 32; ++i)
      EXPECT_EQ(batch.tokens[row * 65 + i], batch.tokens[row * 65 + 33 + i]);
  EXPECT_EQ(batch.tokens[32], 32);
}

TEST(Generators, GoldenValues) {
  const std::map<std::string, uint64_t> expected{{"copy", 12624765371206370712U},
                                                 {"passkey", 6566536689761627606U},
                                                 {"recall", 418447947709833452U}};
  for (const auto& [name, sum] : expected) {
    const Batch batch = make_generator(name, {}, 1)->train(whole_batch(11, 4));
    EXPECT_EQ(checksum(std::as_bytes(std::span(batch.tokens))), sum) << name;
  }
}

TEST(Generators, AreQuick) {
  const auto data = make_generator("phonebook", {}, 1);
  // Of this thread alone: other programs take the processor, too.
  const auto cpu_ms = [] {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
  };
  const auto best_ms = [&](const auto& call) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double start = cpu_ms();
      call();
      best = std::min(best, cpu_ms() - start);
    }
    return best;
  };
  const double train = best_ms([&] { data->train(whole_batch(1, 32)); });
  const double test = best_ms([&] { data->held_out(5, 0, 16); });
  RecordProperty("train_us", static_cast<int>(train * 1000));
  RecordProperty("test_us", static_cast<int>(test * 1000));
  // Far above what it takes (sanitizers and loaded machines included), far below what would be
  // felt.
  EXPECT_LT(train, 10);
  EXPECT_LT(test, 50);
}

}  // namespace
}  // namespace tempera::data
