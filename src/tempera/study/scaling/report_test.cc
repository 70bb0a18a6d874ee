#include "tempera/study/scaling/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tempera/base/testing.h"

namespace tempera::study::scaling {
namespace {

const std::vector<std::string> kMethods = {"softmax", "ssa"};

Cell cell_of(int64_t context) {
  return {.shape = parse_shape("1x32"), .context = context, .method = "ssa", .tokens = 1000};
}

// Of one size, with a law only where a share is given.
Slice slice_of(int64_t context, std::optional<double> share) {
  const Cell cell = cell_of(context);
  Slice slice{.context = context, .shapes = {cell.shape}, .cells = {}, .laws = {}};
  slice.cells = {{.parameters = static_cast<double>(cell.shape.parameters()),
                  .tokens = 1000,
                  .losses = {{4}, {3}}}};
  slice.laws.laws.resize(2);
  slice.laws.savings.resize(2);
  if (!share) return slice;
  const Saving saving{.share = *share, .interval = {*share, *share, *share}, .told = true};
  slice.laws.savings[1] = MethodSavings{.parameters = saving, .tokens = saving};
  return slice;
}

// Of the models of one study, as they are shown.
class Study {
 public:
  explicit Study(std::vector<Slice> slices) {
    analysis_.methods = kMethods;
    analysis_.slices = std::move(slices);
    for (const Slice& slice : analysis_.slices)
      analysis_.differences.push_back(
          {.cell = cell_of(slice.context), .seeds = {-1}, .mean = -1, .half_width = 0});
  }
  Analysis& analysis() { return analysis_; }
  Progressed& done() { return done_; }
  plot::HtmlReport page() const {
    const nlohmann::ordered_json document{{"tempera", "0"},
                                          {"settings", nlohmann::ordered_json::object()}};
    return scaling::page({plan_, done_, analysis_}, document, "tempera study scaling");
  }
  std::string answer() const { return page().first_summary().answer; }
  plot::LineChart differences() const {
    return std::get<plot::LineChart>(figure({plan_, done_, analysis_}).panels.at(1));
  }

 private:
  Plan plan_{.data = {}, .cells = {}, .methods = kMethods};
  Progressed done_;
  Analysis analysis_;
};

TEST(Report, TheAnswerIsThatOfEverySlice) {
  const auto one = Study({slice_of(64, 0.9)}).answer();
  EXPECT_TRUE(says(one, "parameters, 10 % fewer"));
  const auto two = Study({slice_of(64, 0.9), slice_of(128, 0.7)}).answer();
  EXPECT_TRUE(says(two, "At trained length 64, no QK-norm, what ssa needs"));
  EXPECT_TRUE(says(two, "At trained length 128, no QK-norm, what ssa needs"));
  EXPECT_TRUE(says(two, "parameters, 30 % fewer"));
  const auto second = Study({slice_of(64, std::nullopt), slice_of(128, 0.7)}).answer();
  EXPECT_TRUE(says(second, "At trained length 128, no QK-norm, what ssa needs"));
  EXPECT_EQ(second.find("No law"), std::string::npos) << second;
  const auto none = Study({slice_of(64, std::nullopt), slice_of(128, std::nullopt)}).answer();
  EXPECT_TRUE(says(none, "No law could be fitted. At 1x32x1"));
}

TEST(Report, OneSeedHasNoInterval) {
  Study study({slice_of(64, std::nullopt)});
  auto chart = study.differences();
  ASSERT_EQ(chart.series.at(0).y, std::vector<double>{-1});
  EXPECT_TRUE(chart.series[0].low.empty() && chart.series[0].high.empty());
  EXPECT_EQ(chart.title, "Loss less that of softmax");
  EXPECT_EQ(study.page().html().find("95 % intervals of the mean"), std::string::npos);
  study.analysis().differences[0].seeds = {-1.5, -0.5};
  study.analysis().differences[0].half_width = 0.5;
  chart = study.differences();
  EXPECT_EQ(chart.series.at(0).low, std::vector<double>{-1.5});
  EXPECT_EQ(chart.title, "Loss less that of softmax, with 95 % intervals");
  EXPECT_TRUE(says(study.page().html(), "95 % intervals of the mean"));
}

TEST(Report, RatesThatFailedSayHow) {
  Study study({slice_of(64, std::nullopt)});
  Tuning tuning{.method = "ssa", .sweep = {}, .check = {}};
  tuning.sweep = {{.shape = parse_shape("1x32"),
                   .trials = {{0.003, std::nullopt, Outcome::kLost},
                              {0.006, std::nullopt, Outcome::kOutOfMemory},
                              {0.012, std::nullopt, Outcome::kDiverged},
                              {0.024, 4.5}}}};
  study.done().tuning.tunings = {tuning};
  EXPECT_TRUE(says(study.page().html(),
                   "0.003: lost, 0.006: out of memory, 0.012: diverged, 0.024: 4.5000"));
}

}  // namespace
}  // namespace tempera::study::scaling
