#include "tempera/text/bpe_trainer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/text/load.h"

namespace tempera::text {
namespace {

TrainedBpe train(std::string_view text, const BpeTrainerOptions& options) {
  BpeTrainer trainer;
  trainer.add(text);
  return trainer.train(options, [](int64_t) {});
}

std::vector<std::string> merges(const TrainedBpe& trained) {
  std::vector<std::string> all;
  for (const auto& [left, right] : trained.merges)
    all.push_back(trained.pieces[static_cast<size_t>(left)] + "+" +
                  trained.pieces[static_cast<size_t>(right)]);
  return all;
}

TEST(BpeTrainer, JoinsTheMostFrequentPairFirst) {
  // Words: "ab" 3 times and " abc" twice, so that a+b comes 5 times and all else twice. Of equal
  // counts the lower ids go first: the blank is a byte, and ab the newest piece.
  const auto trained = train("ab abc\nab\nab abc", {.vocabulary = 260, .min_frequency = 2});
  EXPECT_EQ(merges(trained), (std::vector<std::string>{"a+b", "Ġ+ab", "Ġab+c"}));
  EXPECT_EQ(trained.pieces.size(), 259u);
}

TEST(BpeTrainer, LeavesRarePairsAndStopsAtTheSize) {
  const std::string text = "ab abc\nab\nab abc";
  EXPECT_EQ(merges(train(text, {.vocabulary = 300, .min_frequency = 3})),
            std::vector<std::string>{"a+b"});
  EXPECT_EQ(train(text, {.vocabulary = 258, .min_frequency = 1}).pieces.size(), 258u);
}

TEST(BpeTrainer, SpecialTokensComeFirst) {
  const auto trained =
      train("aa aa", {.vocabulary = 300, .special_tokens = {"<|endoftext|>", "<pad>"}});
  EXPECT_EQ(trained.pieces[0], "<|endoftext|>");
  EXPECT_EQ(trained.pieces[1], "<pad>");
  EXPECT_EQ(trained.pieces[2], "!");
}

TEST(BpeTrainer, RefusesWhatCannotBe) {
  EXPECT_THROW(train("a", {.vocabulary = 255}), Error);
  EXPECT_THROW(train("a", {.vocabulary = 256, .special_tokens = {"x"}}), Error);
  EXPECT_THROW(train("a", {.vocabulary = 300, .special_tokens = {"x", "x"}}), Error);
  EXPECT_THROW(train("", {.vocabulary = 300}), Error);
}

TEST(BpeTrainer, ItsFileLoadsAndGivesTheTextBack) {
  const std::string text = "the cat sat on the mat; the caf\xc3\xa9 \xe6\xbc\xa2 the end\n\n";
  const TempFolder folder;
  const auto path = folder.path() / "tokenizer.json";
  write_file(
      path, train(text, {.vocabulary = 280, .special_tokens = {"<|endoftext|>"}}).tokenizer_json());
  const auto tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->find("<|endoftext|>"), 0);
  std::vector<int32_t> ids;
  tokenizer->encode(text, ids);
  EXPECT_LT(ids.size(), text.size());
  std::string back;
  tokenizer->decode(ids, back);
  EXPECT_EQ(back, text);
}

}  // namespace
}  // namespace tempera::text
