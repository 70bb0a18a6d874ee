#include "tempera/eval/long_score.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tempera/base/files.h"
#include "tempera/eval/testing_copier.h"

namespace tempera::eval {
namespace {

TEST(LongScore, ACopyingModelFindsWhatStandsThere) {
  const text::ByteTokenizer bytes;
  CopyingModel model(2000);
  for (const char* name : {"needle-keys", "needle-queries", "key-value"}) {
    const LongTask& task = *find_long_task(name);
    const LongTaskOptions options{.lengths = {700}, .depths = {0.5}, .cases = 3};
    int64_t done = 0;
    const auto grid =
        score_long_task(model, bytes, task, options, [&](int64_t cases) { done = cases; });
    EXPECT_EQ(done, 3) << name;
    EXPECT_EQ(done, long_task_cases(task, options)) << name;
    EXPECT_EQ(grid.cells.at(0).cases, std::string(name) == "needle-queries" ? 12 : 3) << name;
    EXPECT_EQ(grid.cells[0].hits, grid.cells[0].cases) << name;
  }
  // It cannot write numbers that stand apart from each other.
  const auto values = score_long_task(model, bytes, *find_long_task("needle-values"),
                                      {.lengths = {700}, .depths = {}, .cases = 3});
  EXPECT_EQ(values.cells.at(0).cases, 3);
  EXPECT_EQ(values.cells[0].hits, 0);
}

// Remembers what it was asked.
class Recorder final : public CopyingModel {
 public:
  Recorder() : CopyingModel(1) {}
  torch::Tensor hidden(const nn::Batch& batch, const nn::LayerObserver& observer) override {
    const auto rows = batch.tokens.accessor<int64_t, 2>();
    for (int64_t b = 0; b < rows.size(0); ++b) {
      std::string text;
      for (int64_t t = 0; t < rows.size(1); ++t) text += static_cast<char>(rows[b][t]);
      texts.insert(text);
    }
    return CopyingModel::hidden(batch, observer);
  }
  std::multiset<std::string> texts;
};

TEST(LongScore, EveryCellHasTextsOfItsOwn) {
  Recorder model;
  const LongTaskOptions options{.lengths = {300, 310}, .depths = {0, 0.5, 1}, .cases = 3};
  const auto grid =
      score_long_task(model, text::ByteTokenizer(), *find_long_task("passkey"), options);
  ASSERT_EQ(model.texts.size(), 18U);
  std::set<std::string> numbers;
  for (const auto& text : model.texts) numbers.insert(text.substr(text.find("key is ") + 7, 5));
  EXPECT_EQ(numbers.size(), 18U) << "a number for each case";
  for (const auto& cell : grid.cells) EXPECT_EQ(cell.texts, 3);
}

// A file's examples are asked in turn, and each counts once however often it is asked.
TEST(LongScore, CellsTakeTheExamplesOfAFileInTurn) {
  const TempFolder folder;
  const auto file = (folder.path() / "examples.jsonl").string();
  std::ofstream lines(file);
  for (int i = 0; i < 7; ++i)
    lines << "{\"question\": \"Who is " << i << "?\", \"answers\": [\"x\"], \"passages\": [\"p" << i
          << "\"]}\n";
  lines.close();
  Recorder model;
  const LongTaskOptions options{.file = file, .lengths = {300}, .depths = {0, 0.5, 1}, .cases = 3};
  const auto grid = score_long_task(model, text::ByteTokenizer(), *find_long_task("qa"), options);
  std::multiset<char> asked;
  for (const auto& text : model.texts) asked.insert(text[text.find("Who is ") + 7]);
  EXPECT_EQ(asked, (std::multiset<char>{'0', '0', '1', '1', '2', '3', '4', '5', '6'}));
  EXPECT_EQ(grid.examples, 7);
  EXPECT_DOUBLE_EQ(grid.overall().high, binomial(0, 7).high);
}

TEST(LongScore, TheLikeliestLabelWins) {
  const TempFolder folder;
  const auto file = (folder.path() / "examples.jsonl").string();
  std::ofstream lines(file);
  for (int i = 0; i < 30; ++i)
    lines << "{\"text\": \"we like it " << (i % 2 ? "much" : "less") << "\", \"label\": \""
          << (i % 2 ? "praise" : "blame") << "\"}\n";
  lines.close();
  const text::ByteTokenizer bytes;
  const LongTaskOptions options{.file = file, .lengths = {500}, .depths = {}, .cases = 8};
  const LongTask& task = *find_long_task("classify");
  CopyingModel seeing(2000), blind(1);
  EXPECT_EQ(score_long_task(seeing, bytes, task, options).cells.at(0).cases, 8);
  EXPECT_LT(score_long_task(blind, bytes, task, options).cells.at(0).hits, 8);
}

}  // namespace
}  // namespace tempera::eval
