#include "tempera/plot/csv.h"

#include <gtest/gtest.h>

#include <string>

#include "tempera/plot/testing.h"

namespace tempera::plot {
namespace {

TEST(CsvTest, HasTheNumbersOfEveryKindOfChart) {
  const Figure figure{
      .title = "figure",
      .panels = {LineChart{.title = "loss",
                           .series = {{.name = "a",
                                       .x = {1, 2},
                                       .y = {0.1, kNan},
                                       .low = {0.05, 0.1},
                                       .high = {0.15, 0.3}},
                                      {.name = "b", .x = {1e300}, .y = {-1.0 / 3}}}},
                 BarChart{.title = "",
                          .categories = {"x", "y"},
                          .series = {{.name = "bars", .values = {2, 4}, .spread = {0.5, 0.25}},
                                     {.name = "plain", .values = {1, 3}}}},
                 HeatMap{.title = "map",
                         .rows = 2,
                         .columns = 2,
                         .values = {1, 2, 3, 4},
                         .row_labels = {"top", "bottom"}}}};
  EXPECT_EQ(to_csv(figure),
            "chart,series,x,y,low,high\n"
            "loss,a,1,0.1,0.05,0.15\n"
            "loss,a,2,,0.1,0.3\n"
            "loss,b,1e+300,-0.3333333333333333,,\n"
            "figure,bars,x,2,1.5,2.5\n"
            "figure,bars,y,4,3.75,4.25\n"
            "figure,plain,x,1,,\n"
            "figure,plain,y,3,,\n"
            "map,top,0,1,,\n"
            "map,top,1,2,,\n"
            "map,bottom,0,3,,\n"
            "map,bottom,1,4,,\n");
}

TEST(CsvTest, NumbersAreReadBackAsTheSame) {
  const double value = 0.1 + 0.2;
  const Figure figure{.panels = {LineChart{.series = {{.name = "s", .x = {value}, .y = {value}}}}}};
  const std::string csv = to_csv(figure);
  const size_t at = csv.rfind("s,") + 2;
  EXPECT_EQ(std::stod(csv.substr(at)), value);
}

TEST(CsvTest, QuotesWhatWouldBreakALine) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field("ssa:a=1,b=2"), "\"ssa:a=1,b=2\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(to_csv({.title = "a,b", .panels = {LineChart{.series = {{.x = {1}, .y = {2}}}}}}),
            "chart,series,x,y,low,high\n\"a,b\",,1,2,,\n");
}

}  // namespace
}  // namespace tempera::plot
