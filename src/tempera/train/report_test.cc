#include "tempera/train/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/plot/csv.h"
#include "tempera/plot/xml_check.h"
#include "tempera/train/history.h"

namespace tempera::train {
namespace {

// The folder of a run, as it is on the disk.
class RunOnDisk {
 public:
  explicit RunOnDisk(Json settings, const std::string& verb = "train") {
    const Json mark{
        {"id", "0123"}, {"verb", verb}, {"build", "abc"}, {"settings", std::move(settings)}};
    write_file(path() / "run.json", mark.dump());
  }
  std::filesystem::path path() const { return folder_.path(); }
  void log(const std::string& line) {
    std::ofstream(path() / "log.jsonl", std::ios::app) << line << "\n";
  }
  void step(int64_t step, double loss) {
    log(Json{{"step", step},
             {"loss", loss},
             {"learning_rate", 0.01},
             {"gradient_norm", 1.5},
             {"tokens", 100 * step},
             {"seconds", 2.0 * static_cast<double>(step)},
             {"tokens_per_second", 50}}
            .dump());
  }
  void validation(int64_t step, double loss) {
    log(Json{{"step", step}, {"validation_loss", loss}, {"perplexity", 1}}.dump());
  }
  plot::HtmlReport report() const { return report_of_run(path()); }
  std::string answer() const { return report().first_summary().answer; }

 private:
  TempFolder folder_;
};

Json settings_of_run() {
  return {{"text", {"data/<book>.txt"}},
          {"model", {{"kind", "decoder"}, {"layers", 4}, {"width", 192}}},
          {"temperature", {{"method", "ssa"}}},
          {"steps", 40},
          {"eval-rows", 64}};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RunReport, SaysWhatWasAskedAndWhatCameOfIt) {
  RunOnDisk run(settings_of_run());
  run.step(10, 3.5);
  run.validation(10, 3.25);
  run.step(40, 2.25);
  run.validation(40, 2.5);
  const plot::Summary summary = run.report().first_summary();
  EXPECT_EQ(summary.asked,
            "Train a decoder of 4 layers and width 192, with temperature ssa, on <book>.txt, for "
            "40 steps.");
  EXPECT_EQ(summary.answer,
            "The held-out loss is 2.500 (perplexity 12.182), from 3.250 at step 10. That took 40 "
            "steps, 4.00k tokens and 1:20.");
  const std::string html = run.report().html();
  EXPECT_EQ(plot::xml_fault(html), "");
  EXPECT_TRUE(has(html, "A training with temperature ssa"));
  EXPECT_TRUE(has(html, "&lt;book&gt;.txt"));
  EXPECT_FALSE(has(html, "<book>"));
  EXPECT_FALSE(has(html, "go on: "));
}

TEST(RunReport, AnInterruptedRunSaysHowFarItIs) {
  RunOnDisk run(settings_of_run());
  EXPECT_EQ(run.answer(), "No step was logged yet.");
  run.step(10, 3.5);
  EXPECT_TRUE(has(run.answer(), "Not finished: 25 % of the budget is spent."));
  EXPECT_TRUE(has(run.answer(), "nothing was held out"));
  EXPECT_TRUE(has(run.report().html(), "go on: <code>tempera train --config "));
  // A torn line, as of a process that was killed.
  std::ofstream(run.path() / "log.jsonl", std::ios::app) << "{\"step\": 20, \"lo";
  EXPECT_TRUE(has(run.answer(), "25 %"));
}

TEST(RunReport, TellsWhereTheLossRoseOrDiverged) {
  RunOnDisk run(settings_of_run());
  run.step(40, 2);
  run.validation(10, 3);
  run.validation(20, 2);
  run.validation(40, 2.5);
  EXPECT_TRUE(has(run.answer(), "It was lowest, 2.000, at step 20 and rose since"));
  run.log("{\"step\": 40, \"validation_loss\": null}");
  EXPECT_TRUE(has(run.answer(), "diverged"));
}

TEST(RunReport, CurvesAreTheLoggedNumbers) {
  RunOnDisk run(settings_of_run());
  run.step(10, 3.5);
  run.validation(10, 3.25);
  run.step(20, 0.1 + 0.2);
  run.log(
      "{\"step\":20,\"loss\":null,\"watched\":{\"layers\":[{\"layer\":\"0\",\"temperature\":"
      "[0.5,0.6,0.7,0.8,0.9],\"entropy\":[1,2,3,4,5]}, 7, {\"layer\":\"1\",\"entropy\":[1]}]}}");
  const std::string csv = plot::to_csv(figure_of_run(run.path()));
  EXPECT_TRUE(has(csv, "Loss,training,10,3.5,,\nLoss,training,20,0.30000000000000004,,\n"));
  EXPECT_TRUE(has(csv, "Loss,held out,10,3.25,,\n"));
  EXPECT_TRUE(has(csv, "Learning rate,,10,0.01,,\n"));
  EXPECT_TRUE(has(csv, "\"Temperature, median of the heads\",layer 0,20,0.7,,\n"));
  EXPECT_TRUE(has(csv, "\"Entropy of attention, median of the heads\",layer 0,20,3,,\n"));
  EXPECT_FALSE(has(csv, "layer 1"));
}

TEST(RunReport, LongRunsStaySmall) {
  RunOnDisk run(settings_of_run());
  std::ofstream log(run.path() / "log.jsonl");
  for (int step = 1; step <= 20'000; ++step)
    log << "{\"step\":" << step << ",\"loss\":" << 3 + 1.0 / step
        << ",\"learning_rate\":0.001,\"gradient_norm\":1,\"tokens_per_second\":5}\n";
  log.close();
  EXPECT_LT(run.report().html().size(), 400'000U);
}

TEST(RunReport, NeighboursBecomeTheirMean) {
  const LoggedCurve curve{.steps = {1, 2, 3, 4, 5}, .values = {2, 4, 6, 8, 9}};
  const LoggedCurve thin = thinned(curve, 3);
  EXPECT_EQ(thin.steps, (std::vector<double>{1.5, 3.5, 5}));
  EXPECT_EQ(thin.values, (std::vector<double>{3, 7, 9}));
  EXPECT_EQ(thinned(curve, 5).values, curve.values);
}

TEST(RunReport, SettingsOfAnyKindAreShown) {
  for (const Json& settings :
       {Json(), Json::array({1}), Json{{"model", "a & b"}, {"text", 3}, {"steps", "many"}},
        Json{{"temperature", 1}, {"model", {{"layers", "x"}}}, {"task", {{"name", "<t>"}}}}})
    for (const char* verb : {"train", "finetune", "calibrate"})
      EXPECT_EQ(plot::xml_fault(RunOnDisk(settings, verb).report().html()), "");
}

TEST(RunReport, RefusesWhatIsNoRun) {
  const TempFolder folder;
  EXPECT_THROW(report_of_run(folder.path()), Error);
  write_file(folder.path() / "run.json", "[]");
  EXPECT_THROW(report_of_run(folder.path()), Error);
  write_file(folder.path() / "run.json", "{\"id\": \"1\"");
  EXPECT_THROW(report_of_run(folder.path()), Error);
}

TEST(RunReport, TheWriterGoesOnWhereItCannotWrite) {
  RunOnDisk run(settings_of_run());
  run.step(40, 2);
  std::string said;
  ReportWriter writer(run.path(), [&](std::string_view line) { said = line; });
  writer.write_sometimes();
  EXPECT_EQ(said, "");
  EXPECT_EQ(read_file(run.path() / "report.html", 1 << 24), run.report().html());
  std::filesystem::remove(run.path() / "run.json");
  writer.write();
  EXPECT_TRUE(has(said, "run.json")) << said;
}

}  // namespace
}  // namespace tempera::train
