#include "tempera/eval/grid.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

Grid sample() {
  Grid grid = Grid::empty("passkey", {100, 200}, {0, 0.5});
  grid.cell(0, 0) = {.length = 100, .depth = 0, .hits = 4, .cases = 4, .texts = 4};
  grid.cell(0, 1) = {.length = 100, .depth = 0.5, .hits = 2, .cases = 4, .texts = 4};
  grid.cell(1, 0) = {.length = 200, .depth = 0, .hits = 0, .cases = 4, .texts = 4};
  grid.cell(1, 1) = {.length = 200, .depth = 0.5, .hits = 1, .cases = 4, .texts = 4};
  return grid;
}

TEST(Grid, SumsByLengthAndOverAll) {
  const Grid grid = sample();
  EXPECT_DOUBLE_EQ(grid.at_length(0).value, 0.75);
  EXPECT_DOUBLE_EQ(grid.at_length(1).value, 0.125);
  EXPECT_DOUBLE_EQ(grid.overall().value, 7.0 / 16);
  EXPECT_LT(grid.overall().low, 7.0 / 16);
  EXPECT_GT(grid.overall().high, 7.0 / 16);
  const auto json = to_json(grid);
  EXPECT_EQ(json["cells"][3]["hits"], 1);
  EXPECT_EQ(json["lengths"][1]["cases"], 8);
  EXPECT_DOUBLE_EQ(json["lengths"][0]["accuracy"], 0.75);
  const auto text = to_text(grid);
  EXPECT_NE(text.find("75.0"), std::string::npos) << text;
  EXPECT_NE(text.find("12.5"), std::string::npos) << text;
}

TEST(Grid, IntervalsAreThoseOfIndependentTexts) {
  Grid grid = sample();
  const Estimate alone = grid.overall(), sixteen = binomial(7.0 / 16, 16);
  EXPECT_EQ(alone.low, sixteen.low);
  EXPECT_EQ(alone.high, sixteen.high);
  EXPECT_GT(binomial(0.75, 8).high, grid.at_length(0).low);
  // Four questions about each text say less than as many texts.
  for (auto& cell : grid.cells) cell.texts = 1;
  EXPECT_EQ(grid.overall().low, binomial(7.0 / 16, 4).low);
  EXPECT_LT(grid.overall().low, alone.low);
  EXPECT_GT(grid.overall().high, alone.high);
  EXPECT_EQ(grid.overall().value, alone.value);
}

TEST(Grid, IsAHeatMapOrACurve) {
  const auto map = std::get<plot::HeatMap>(to_chart(sample(), "t"));
  EXPECT_EQ(map.rows, 2U);  // depths
  EXPECT_EQ(map.values, (std::vector<double>{100, 0, 50, 25}));
  Grid flat = Grid::empty("classes", {100, 200}, {});
  flat.cell(0) = {.length = 100, .hits = 1, .cases = 2, .texts = 2};
  flat.cell(1) = {.length = 200, .hits = 2, .cases = 2, .texts = 2};
  const auto chart = std::get<plot::LineChart>(to_chart(flat, "t"));
  EXPECT_EQ(chart.series[0].y, (std::vector<double>{50, 100}));
  EXPECT_FALSE(plot::to_svg(to_figure(flat)).empty());
  EXPECT_THROW(Grid::empty("x", {}, {}), Error);
}

}  // namespace
}  // namespace tempera::eval
