#include "tempera/eval/long_score.h"

#include <gtest/gtest.h>

#include <fstream>

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
