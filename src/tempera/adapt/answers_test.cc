#include "tempera/adapt/answers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tempera::adapt {
namespace {

// Blocks of a hundred tokens with these mean losses.
eval::TextScores scores(const std::vector<double>& losses) {
  eval::TextScores made;
  for (const double loss : losses) {
    made.blocks.push_back({.loss = 100 * loss, .tokens = 100});
    made.loss += loss / static_cast<double>(losses.size());
  }
  made.perplexity = std::exp(made.loss);
  made.tokens = static_cast<int64_t>(100 * losses.size());
  return made;
}

Measure measure(const std::vector<double>& losses, int64_t found) {
  Measure made;
  made.perplexity[512] = made.perplexity[4096] = scores(losses);
  auto grid = eval::Grid::empty("passkey", {512, 4096}, {});
  grid.cells[0] = {.length = 512, .hits = 40, .cases = 40, .texts = 40};
  grid.cells[1] = {.length = 4096, .hits = found, .cases = 40, .texts = 40};
  made.passkey = grid;
  return made;
}

CalibrationResult result(const Measures& measures) {
  CalibrationResult made;
  made.learned = "head";
  made.folds = true;
  made.measures = measures;
  return made;
}

// The same blocks are drawn for both models: what moves both moves no interval.
TEST(Answers, RatiosArePaired) {
  const auto ratio = perplexity_ratio(scores({1, 5, 2, 8}), scores({0.9, 4.9, 1.9, 7.9}));
  ASSERT_TRUE(ratio);
  EXPECT_NEAR(ratio->value, std::exp(-0.1), 1e-12);
  EXPECT_NEAR(ratio->low, ratio->high, 1e-12);
  const auto noisy = perplexity_ratio(scores({1, 2, 3, 4}), scores({1.5, 1.5, 3.5, 3.5}));
  EXPECT_LT(noisy->low, 1);
  EXPECT_GT(noisy->high, 1);
  EXPECT_FALSE(perplexity_ratio(scores({1, 2}), scores({1})));
  EXPECT_FALSE(perplexity_ratio(scores({1}), scores({2}))) << "one block has no spread";
}

TEST(Answers, AnOwnersQuestions) {
  const Measures measures{{"before", measure({3, 3}, 2)}, {"after", measure({2.9, 2.9}, 38)}};
  const auto answers = owner_answers(result(measures));
  ASSERT_EQ(answers.size(), 4U);
  EXPECT_NE(answers[0].second.find("up to 4096 tokens; before up to 512 tokens"), std::string::npos)
      << answers[0].second;
  EXPECT_NE(answers[0].second.find("95 (83-99) %"), std::string::npos) << answers[0].second;
  EXPECT_NE(answers[1].second.find("better"), std::string::npos) << answers[1].second;
  EXPECT_NE(answers[2].second.find("--controls all"), std::string::npos);
  EXPECT_NE(answers[3].second.find("folds"), std::string::npos);
}

TEST(Answers, ControlsAndWhatGotWorse) {
  auto worse = measure({3.2, 3.2}, 10);
  auto before = measure({3, 3}, 2);
  before.perplexity[512].by_position = {{.first = 1, .last = 15, .tokens = 1000, .loss = 3}};
  worse.perplexity[512].by_position = {{.first = 1, .last = 15, .tokens = 1000, .loss = 3.2}};
  const auto answers = owner_answers(
      result({{"before", before}, {"after", worse}, {"norm alone", measure({3, 3}, 9)}}));
  EXPECT_NE(answers[1].second.find("worse"), std::string::npos);
  EXPECT_NE(answers[2].second.find("norm alone perplexity"), std::string::npos)
      << answers[2].second;
  EXPECT_NE(answers[3].second.find("Some places got worse"), std::string::npos);
}

// A whole length and its passkeys count, whatever its ranges of positions say.
TEST(Answers, ALengthThatGotWorseIsNotSafe) {
  const Measure before = measure({3, 3.1}, 38);
  const auto safe = [&](const Measure& after) {
    return owner_answers(result({{"before", before}, {"after", after}}))[3].second;
  };
  EXPECT_NE(safe(measure({3, 3.1}, 38)).find("No length"), std::string::npos);
  EXPECT_NE(safe(measure({2.9, 3.2}, 36)).find("No length"), std::string::npos)
      << "no difference that can be told";
  const auto worse = safe(measure({3.5, 3.7}, 38));
  EXPECT_NE(worse.find("Some places got worse: windows of 512 tokens: the perplexity grew from "
                       "21.12 to 36.60, 1.733 (1.649-1.822) times what it was; and 1 more below."),
            std::string::npos)
      << worse;
  const auto lost = safe(measure({3, 3.1}, 2));
  EXPECT_NE(lost.find("passkeys of 4096 tokens: 5 (1-17) % found, before 95 (83-99) %."),
            std::string::npos)
      << lost;
}

// The text may be shorter than the context, whose passkeys are measured all the same.
TEST(Answers, PasskeysAreOfTheirOwnLength) {
  const auto brief = [](int64_t found) {
    auto made = measure({3, 3.1}, found);
    made.perplexity.erase(4096);
    made.perplexity[1860] = scores({3, 3.1});
    return made;
  };
  const auto part =
      owner_answers(result({{"before", brief(2)}, {"after", brief(38)}, {"norm", brief(9)}}))[2]
          .second;
  EXPECT_NE(
      part.find("At 1860 tokens: head perplexity 21.12, passkeys of 4096 tokens 95 (83-99) %"),
      std::string::npos)
      << part;
}

}  // namespace
}  // namespace tempera::adapt
