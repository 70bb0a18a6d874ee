#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tempera/data/checksum.h"
#include "tempera/data/generator.h"

namespace tempera::data {
namespace {

constexpr int64_t kNumbers = 16;
constexpr int64_t kNames = 2048;

// Reads a row as a person would, and checks every statement of the task.
void check_book(const Batch& batch, int64_t row, int64_t entries, int64_t questions) {
  const int64_t* tokens = batch.tokens.data() + row * batch.length;
  const int64_t* targets = batch.targets.data() + row * batch.length;
  ASSERT_EQ(batch.length, 2 * (entries + questions));
  ASSERT_EQ(batch.questions, questions);
  std::map<int64_t, int64_t> number_at;  // of a name
  for (int64_t entry = 0; entry < entries; ++entry) {
    const int64_t name = tokens[2 * entry];
    ASSERT_TRUE(name >= kNumbers && name < kNumbers + kNames);
    ASSERT_TRUE(tokens[2 * entry + 1] >= 0 && tokens[2 * entry + 1] < kNumbers);
    ASSERT_TRUE(number_at.emplace(name, 2 * entry + 1).second) << "a name stands twice";
    ASSERT_EQ(targets[2 * entry], kIgnored);
    ASSERT_EQ(targets[2 * entry + 1], kIgnored);
  }
  std::set<int64_t> asked;
  for (int64_t q = 0; q < questions; ++q) {
    const int64_t at = 2 * (entries + q);
    ASSERT_TRUE(asked.insert(tokens[at]).second) << "a name is asked twice";
    ASSERT_TRUE(number_at.contains(tokens[at]));
    const int64_t right = number_at[tokens[at]];
    ASSERT_EQ(tokens[at + 1], tokens[right]);
    ASSERT_EQ(targets[at], tokens[right]);
    ASSERT_EQ(targets[at + 1], kIgnored);
    const auto question = static_cast<size_t>(row * questions + q);
    ASSERT_EQ(batch.question_positions[question], at);
    ASSERT_EQ(batch.answer_positions[question], right);
  }
}

TEST(Phonebook, TrainingRowsAreBooks) {
  const auto data = make_generator("phonebook", {}, 1);
  EXPECT_EQ(data->vocabulary(), kNumbers + kNames);
  EXPECT_EQ(data->classes(), kNumbers);
  EXPECT_EQ(data->train_length(), 96);
  for (uint64_t step = 0; step < 50; ++step) {
    const Batch batch = data->train(whole_batch(step, 32));
    const int64_t questions = batch.questions;
    const int64_t entries = batch.length / 2 - questions;
    ASSERT_TRUE(entries >= 8 && entries <= 32);
    ASSERT_EQ(questions, std::min<int64_t>(16, entries));
    for (int64_t row = 0; row < 32; ++row) check_book(batch, row, entries, questions);
  }
}

TEST(Phonebook, SizesAndNumbersAreUniform) {
  const auto data = make_generator("phonebook", {}, 3);
  std::map<int64_t, int> sizes;
  std::map<int64_t, int> numbers;
  for (uint64_t step = 0; step < 5000; ++step) {
    const Batch batch = data->train(whole_batch(step, 1));
    ++sizes[batch.length / 2 - batch.questions];
    ++numbers[batch.tokens[1]];
  }
  EXPECT_EQ(sizes.size(), 25U);
  for (const auto& [size, count] : sizes) EXPECT_NEAR(count, 200, 5 * 14) << size;
  EXPECT_EQ(numbers.size(), 16U);
  for (const auto& [number, count] : numbers) EXPECT_NEAR(count, 312, 5 * 18) << number;
}

TEST(Phonebook, HeldOutSetsAreTheOnesOfTheTask) {
  const auto data = make_generator("phonebook", {}, 1);
  const auto& sets = data->held_out_sets();
  ASSERT_EQ(sets.size(), 6U);
  int64_t entries = 32;
  for (size_t set = 0; set < sets.size(); ++set, entries *= 2) {
    const int64_t questions = std::min<int64_t>(64, entries);
    EXPECT_EQ(sets[set].label, std::to_string(entries));
    EXPECT_EQ(sets[set].size, entries);
    EXPECT_EQ(sets[set].rows, set == 0 ? 64 : 16);
    EXPECT_EQ(sets[set].length, 2 * (entries + questions));
    const Batch batch = data->held_out(set, 0, sets[set].rows);
    for (int64_t row = 0; row < batch.rows; ++row) check_book(batch, row, entries, questions);
  }
}

TEST(Phonebook, GoldenValues) {
  const auto data = make_generator("phonebook", {}, 1);
  const Batch batch = data->train(whole_batch(0, 32));
  EXPECT_EQ((std::vector<int64_t>(batch.tokens.begin(), batch.tokens.begin() + 6)),
            (std::vector<int64_t>{872, 3, 2056, 15, 1084, 8}));
  EXPECT_EQ(checksum(std::as_bytes(std::span(batch.tokens))), 1661136052608579745U);
  const Batch test = data->held_out(5, 0, 16);
  EXPECT_EQ(checksum(std::as_bytes(std::span(test.tokens))), 11976066056825336520U);
}

}  // namespace
}  // namespace tempera::data
