#include "tempera/plot/join.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tempera/plot/xml_check.h"

namespace tempera::plot {
namespace {

LineChart loss(double value, const std::string& y_label = "loss") {
  return {.title = "Loss",
          .x = {.label = "step"},
          .y = {.label = y_label},
          .series = {{.name = "training", .x = {1, 2}, .y = {value, value / 2}}}};
}

NamedReport run(const std::string& name, std::vector<Chart> charts) {
  HtmlReport report("A <training>");
  report.summary({.asked = "What of " + name + "?", .answer = "This & that."});
  report.heading("Curves");
  report.figure({.panels = std::move(charts)}, "of " + name);
  return {name, report};
}

TEST(JoinTest, ChartsWithTheSameAxesBecomeOne) {
  LineChart both = loss(4);
  both.series.push_back({.name = "validation", .x = {2}, .y = {3}});
  const Figure common = common_charts(
      {run("a", {loss(8)}), run("b", {both, BarChart{}}), run("c", {loss(1, "bits")})});
  ASSERT_EQ(common.panels.size(), 1u);
  const auto& chart = std::get<LineChart>(common.panels[0]);
  EXPECT_EQ(chart.title, "Loss");
  ASSERT_EQ(chart.series.size(), 3u);
  EXPECT_EQ(chart.series[0].name, "a");
  EXPECT_EQ(chart.series[0].y, (std::vector<double>{8, 4}));
  EXPECT_EQ(chart.series[1].name, "b: training");
  EXPECT_EQ(chart.series[2].name, "b: validation");
}

TEST(JoinTest, OfManyReportsTheLastCurvesStay) {
  LineChart both = loss(4);
  both.series.push_back({.name = "held out", .x = {2}, .y = {3}});
  const Figure common = common_charts(std::vector<NamedReport>(9, run("a", {both})));
  ASSERT_EQ(common.panels.size(), 1u);
  const auto& chart = std::get<LineChart>(common.panels[0]);
  ASSERT_EQ(chart.series.size(), 9u);
  for (const Series& series : chart.series) EXPECT_EQ(series.name, "a: held out");
  EXPECT_TRUE(common_charts(std::vector<NamedReport>(17, run("a", {both}))).panels.empty());
}

TEST(JoinTest, NothingIsInCommonWithItself) {
  EXPECT_TRUE(common_charts({run("a", {loss(1), loss(2)}), run("b", {BarChart{}})}).panels.empty());
}

TEST(JoinTest, OnePageHasAllAnswersFirst) {
  const std::string html = join({run("x/one", {loss(8)}), run("<two>", {loss(4)})}).html();
  EXPECT_EQ(xml_fault(html), "");
  const auto at = [&](std::string_view part) {
    const size_t found = html.find(part);
    EXPECT_NE(found, std::string::npos) << part;
    return found;
  };
  EXPECT_LT(at("<td><a href=\"#part-2\">&lt;two&gt;</a></td>"), at("<h2>In common</h2>"));
  EXPECT_LT(at("What of &lt;two&gt;?</td>"), at("<h2>In common</h2>"));
  EXPECT_LT(at("<h2>In common</h2>"), at("id=\"part-1\">x/one: A &lt;training&gt;</h2>"));
  EXPECT_LT(at("id=\"part-1\""), at("<h3>Curves</h3>"));
  EXPECT_LT(at("of x/one"), at("id=\"part-2\""));
}

}  // namespace
}  // namespace tempera::plot
