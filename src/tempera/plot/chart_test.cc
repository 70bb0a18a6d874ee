#include "tempera/plot/chart.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/plot/raster.h"
#include "tempera/plot/svg.h"
#include "tempera/plot/testing.h"
#include "tempera/plot/xml_check.h"

namespace tempera::plot {
namespace {

const double kInf = std::numeric_limits<double>::infinity();

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Image decode(const std::vector<uint8_t>& bytes) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&header, bytes.data(), bytes.size()), 0);
  header.format = PNG_FORMAT_RGB;
  Image image{header.width, header.height, std::vector<uint8_t>(PNG_IMAGE_SIZE(header))};
  EXPECT_NE(png_image_finish_read(&header, nullptr, image.rgb.data(), 0, nullptr), 0);
  return image;
}

// Both back ends must draw it.
void expect_drawn(const Chart& chart) {
  const Figure figure{.panels = {chart}};
  EXPECT_EQ(xml_fault(to_svg(figure)), "");
  EXPECT_EQ(to_svg(figure).find("nan"), std::string::npos);
  EXPECT_FALSE(to_png(figure, 1).empty());
}

LineChart two_series() {
  LineChart chart{.title = "Accuracy", .x = {.label = "entries"}, .y = {.label = "percent"}};
  chart.series.push_back({.name = "plain", .x = {0, 1, 2}, .y = {1, 2, 3}});
  chart.series.push_back({.name = "focal",
                          .x = {0, 1, 2},
                          .y = {2, 3, 4},
                          .low = {1, 2, 3},
                          .high = {3, 4, 5},
                          .markers = true});
  return chart;
}

TEST(LineChartTest, DrawsSeriesBandMarkersLegendAndLabels) {
  const std::string svg = to_svg({.title = "Figure", .panels = {two_series()}});
  EXPECT_EQ(xml_fault(svg), "");
  for (const char* text :
       {">Figure<", ">Accuracy<", ">entries<", ">percent<", ">plain<", ">focal<", ">1.0<"})
    EXPECT_GE(count(svg, text), 1u) << text;
  // One line in the legend and one in the chart for each series; the band is the translucent one.
  EXPECT_EQ(count(svg, "fill=\"none\" stroke=\"" + hex(series_color(0)) + "\""), 2u);
  EXPECT_EQ(count(svg, "fill=\"none\" stroke=\"" + hex(series_color(1)) + "\""), 2u);
  EXPECT_EQ(count(svg, "fill-opacity=\"0.18\""), 1u);
  // Markers of the second series are squares: three points and the legend.
  EXPECT_EQ(count(svg, "height=\"5.76\" fill=\"" + hex(series_color(1)) + "\""), 4u);
}

TEST(LineChartTest, PutsPixelsWhereTheDataIs) {
  LineChart chart{.x = {.min = 0, .max = 10}, .y = {.min = 0, .max = 10}};
  chart.series.push_back({.x = {0, 10}, .y = {5, 5}});
  const Image image =
      decode(to_png({.panels = {chart}, .panel_width = 400, .panel_height = 300}, 1));
  EXPECT_EQ(image.width, 428u);
  EXPECT_EQ(image.height, 328u);
  // A horizontal line across the area in the middle of its height, and nothing of its colour
  // elsewhere.
  size_t low = image.height, high = 0, widest = 0;
  for (size_t y = 0; y < image.height; ++y) {
    size_t in_row = 0;
    for (size_t x = 0; x < image.width; ++x) {
      const uint8_t* p = &image.rgb[(y * image.width + x) * 3];
      if (p[0] < 40 && p[1] > 100 && p[1] < 150 && p[2] > 150 && p[2] > p[1] + 30) ++in_row;
    }
    if (in_row == 0) continue;
    low = std::min(low, y);
    high = std::max(high, y);
    widest = std::max(widest, in_row);
  }
  EXPECT_GT(widest, 340u);
  EXPECT_LE(high - low, 2u);
  EXPECT_NEAR(static_cast<double>(low), 14 + 6 + (300 - 6 - 18) / 2.0, 2);
}

TEST(LineChartTest, BreaksAtWhatCannotBeShown) {
  LineChart chart;
  chart.series.push_back({.x = {0, 1, 2, 3, 4, 5}, .y = {1, 2, kNan, 4, kInf, 6}});
  const std::string svg = to_svg({.panels = {chart}});
  EXPECT_EQ(count(svg, "stroke=\"" + hex(series_color(0)) + "\""), 3u);
  chart.y.log = true;
  chart.series = {
      {.x = {0, 1, 2, 3}, .y = {1, -1, 0, 5}, .low = {0, -2, -2, 4}, .high = {2, 0, 1, 6}}};
  expect_drawn(chart);
  EXPECT_EQ(count(to_svg({.panels = {chart}}), "stroke=\"" + hex(series_color(0)) + "\""), 2u);
}

TEST(LineChartTest, EmptyAndExtremeDataIsDrawn) {
  expect_drawn(LineChart{});
  EXPECT_NE(to_svg({.panels = {LineChart{}}}).find("no data"), std::string::npos);
  const std::vector<std::vector<double>> cases{{kNan, kNan}, {5, 5},        {-1e308, 1e308},
                                               {5e-324, 0},  {kInf, -kInf}, {1e16, 1e16 + 2}};
  for (const auto& values : cases)
    for (const bool log : {false, true}) {
      LineChart chart{.x = {.log = log}, .y = {.log = log}};
      chart.series.push_back(
          {.x = values, .y = values, .low = values, .high = values, .markers = true});
      chart.guides = {{values[0], "v", true}, {values[1], "h", false}};
      expect_drawn(chart);
    }
  LineChart limits = two_series();
  limits.y.min = 10;
  limits.y.max = 10;
  expect_drawn(limits);
  limits.y.min = 1e300;
  limits.y.max = -1e300;
  expect_drawn(limits);
  limits.y = {.log = true, .min = -5, .max = kNan};
  expect_drawn(limits);
}

TEST(LineChartTest, ThinsLongLinesButKeepsPeaks) {
  LineChart chart{.y = {.min = 0, .max = 10}};
  Series series;
  for (int i = 0; i < 200000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 123457 ? 10 : 1 + 0.001 * (i % 2));
  }
  chart.series.push_back(series);
  const std::string svg = to_svg({.panels = {chart}});
  EXPECT_LT(svg.size(), 120000u);
  // The peak reaches the top of the area.
  EXPECT_NE(svg.find(",20 "), std::string::npos);
}

TEST(LineChartTest, SmallDifferencesLookSmall) {
  LineChart chart;
  chart.series.push_back({.x = {0, 1}, .y = {39.285134, 39.285143}});
  const std::string svg = to_svg({.panels = {chart}});
  EXPECT_EQ(count(svg, ">39.27<") + count(svg, ">39.28<") + count(svg, ">39.29<"), 3u);
  EXPECT_EQ(count(svg, ">39.2851"), 0u);
}

TEST(LineChartTest, ShowsExplicitTicksAndGuides) {
  LineChart chart{.x = {.log = true, .ticks = {8, 32, 512, 100000}}};
  chart.series.push_back({.x = {8, 512}, .y = {0, 1}});
  chart.guides = {{32, "trained here", true}, {99, "outside", true}};
  chart.guides[1].at = 1e9;
  chart.x.max = 512;
  const std::string svg = to_svg({.panels = {chart}});
  EXPECT_EQ(count(svg, ">8<") + count(svg, ">32<") + count(svg, ">512<"), 3u);
  EXPECT_EQ(count(svg, ">100k<"), 0u);
  EXPECT_EQ(count(svg, "trained here"), 1u);
  EXPECT_EQ(count(svg, "outside"), 0u);
}

TEST(LineChartTest, RefusesMismatchedLengths) {
  LineChart chart;
  chart.series.push_back({.name = "s", .x = {1, 2}, .y = {1}});
  EXPECT_THROW(to_svg({.panels = {chart}}), Error);
  chart.series = {{.x = {1, 2}, .y = {1, 2}, .low = {1, 2}}};
  EXPECT_THROW(to_svg({.panels = {chart}}), Error);
  chart.series = {{.x = {1, 2}, .y = {1, 2}, .low = {1}, .high = {1}}};
  EXPECT_THROW(to_svg({.panels = {chart}}), Error);
}

TEST(BarChartTest, DrawsBarsOfTheRightHeight) {
  BarChart chart{.title = "Bars", .y = {.min = 0, .max = 10}, .categories = {"a", "b & c"}};
  chart.series = {{"one", {5, 10}, {}}, {"two", {2.5, kNan}, {1, 1}}};
  const Figure figure{.panels = {chart}, .panel_width = 400, .panel_height = 300};
  const std::string svg = to_svg(figure);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "fill=\"" + hex(series_color(0)) + "\""), 3u);  // two bars and the legend
  EXPECT_EQ(count(svg, "fill=\"" + hex(series_color(1)) + "\""),
            2u);  // the missing value draws nothing
  for (const char* text : {">5.0<", ">10.0<", ">2.5<", ">b &amp; c<"})
    EXPECT_EQ(count(svg, text), 1u) << text;
  // Title 21, legend 22, top 6, labels 18 points: the area is 233 high.
  EXPECT_EQ(count(svg, "height=\"233\" fill=\"" + hex(series_color(0)) + "\""), 1u);
  EXPECT_EQ(count(svg, "height=\"116.5\" fill=\"" + hex(series_color(0)) + "\""), 1u);
  EXPECT_EQ(count(svg, "height=\"58.25\" fill=\"" + hex(series_color(1)) + "\""), 1u);
}

TEST(BarChartTest, EmptyNegativeAndExtremeDataIsDrawn) {
  expect_drawn(BarChart{});
  expect_drawn(BarChart{.categories = {"a"}});
  const std::vector<std::vector<double>> cases{{0, 0},          {kNan, kNan}, {-5, -1},
                                               {-1e308, 1e308}, {kInf, 1},    {5e-324, 0}};
  for (const auto& values : cases)
    expect_drawn(BarChart{.categories = {"a", "b"}, .series = {{"s", values, {1, kNan}}}});
  BarChart many;
  for (int i = 0; i < 200; ++i)
    many.categories.push_back("a long name of category " + std::to_string(i));
  many.series = {{"s", std::vector<double>(200, 3), {}}};
  expect_drawn(many);
  const std::string svg = to_svg({.panels = {many}});
  EXPECT_LT(count(svg, "rotate(-90"), 60u);  // thinned, not on top of one another
  EXPECT_GT(count(svg, "rotate(-90"), 5u);
}

TEST(BarChartTest, RefusesMismatchedLengths) {
  EXPECT_THROW(to_svg({.panels = {BarChart{.categories = {"a"}, .series = {{"s", {1, 2}, {}}}}}}),
               Error);
  EXPECT_THROW(to_svg({.panels = {BarChart{.categories = {"a"}, .series = {{"s", {1}, {1, 2}}}}}}),
               Error);
  EXPECT_THROW(to_svg({.panels = {BarChart{
                           .y = {.log = true}, .categories = {"a"}, .series = {{"s", {1}, {}}}}}}),
               Error);
}

TEST(HeatMapTest, ColoursCellsByValue) {
  HeatMap chart{.rows = 2, .columns = 2, .values = {0, 1, kNan, 0.5}, .show_values = true};
  chart.row_labels = {"r<0>", "r1"};
  chart.column_labels = {"c0", "c1"};
  const Figure figure{.panels = {chart}};
  const std::string svg = to_svg(figure);
  EXPECT_EQ(xml_fault(svg), "");
  for (const char* text : {">r&lt;0&gt;<", ">r1<", ">c0<", ">c1<", ">0.00<", ">1.00<", ">0.50<"})
    EXPECT_EQ(count(svg, text), 1u) << text;
  const Image image = decode(to_png(figure, 1));
  const auto at = [&](double x, double y) {
    const size_t i =
        (static_cast<size_t>(y * 340 + 14) * image.width + static_cast<size_t>(x * 520 + 14)) * 3;
    return hex({image.rgb[i], image.rgb[i + 1], image.rgb[i + 2]});
  };
  // Near the outer corners of the cells, away from the numbers.
  EXPECT_EQ(at(0.1, 0.1), hex(scale_color(ColorScale::kSequential, 0)));
  EXPECT_EQ(at(0.8, 0.1), hex(scale_color(ColorScale::kSequential, 1)));
  EXPECT_EQ(at(0.1, 0.85), hex(kGrid));
  EXPECT_EQ(at(0.8, 0.85), hex(scale_color(ColorScale::kSequential, 0.5)));
}

TEST(HeatMapTest, DivergingScaleIsCentredOnZero) {
  const HeatMap chart{.rows = 1, .columns = 2, .values = {0, 3}, .scale = ColorScale::kDiverging};
  const std::string svg = to_svg({.panels = {chart}});
  EXPECT_GE(count(svg, hex(scale_color(ColorScale::kDiverging, 0.5))), 1u);
  EXPECT_GE(count(svg, hex(scale_color(ColorScale::kDiverging, 1))), 1u);
}

TEST(HeatMapTest, EmptyExtremeAndLargeDataIsDrawn) {
  expect_drawn(HeatMap{});
  expect_drawn(HeatMap{.rows = 1, .columns = 1, .values = {kNan}, .show_values = true});
  expect_drawn(HeatMap{.rows = 1, .columns = 2, .values = {-1e308, 1e308}, .show_values = true});
  expect_drawn(HeatMap{.rows = 1, .columns = 2, .values = {3, 3}, .min = 5, .max = 5});
  HeatMap large{.rows = 1100, .columns = 1050, .values = std::vector<double>(1100 * 1050, 0.25)};
  large.values[7] = kInf;
  large.row_labels.assign(1100, "token");
  large.column_labels.assign(1050, "token");
  expect_drawn(large);
  EXPECT_LT(to_svg({.panels = {large}}).size(), 200000u);
}

TEST(HeatMapTest, RefusesMismatchedSizes) {
  EXPECT_THROW(to_svg({.panels = {HeatMap{.rows = 2, .columns = 2, .values = {1}}}}), Error);
  EXPECT_THROW(to_svg({.panels = {HeatMap{
                           .rows = 1, .columns = 1, .values = {1}, .row_labels = {"a", "b"}}}}),
               Error);
}

TEST(FigureTest, LaysOutAGrid) {
  const Figure figure{
      .title = "Grid",
      .panels = {two_series(), BarChart{.title = "second"}, HeatMap{.title = "third"}},
      .columns = 2,
      .panel_width = 300,
      .panel_height = 200};
  const std::string svg = to_svg(figure);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_NE(svg.find("width=\"650\" height=\"478\""), std::string::npos);
  EXPECT_NE(svg.find("x=\"336\""), std::string::npos);  // the second column
  const Image image = decode(to_png(figure, 2));
  EXPECT_EQ(image.width, 1300u);
  EXPECT_EQ(image.height, 956u);
  EXPECT_EQ(hex({image.rgb[0], image.rgb[1], image.rgb[2]}), "#ffffff");
  expect_drawn(LineChart{});
  EXPECT_EQ(xml_fault(to_svg(Figure{})), "");
}

TEST(FigureTest, RefusesAbsurdLayouts) {
  EXPECT_THROW(to_svg({.columns = 0}), Error);
  EXPECT_THROW(to_svg({.panel_width = 3}), Error);
  EXPECT_THROW(to_svg({.panel_height = kNan}), Error);
  EXPECT_THROW(to_png({.panel_width = 1e7}), Error);
}

TEST(FigureTest, SavesByExtension) {
  const TempFolder folder;
  const Figure figure{.panels = {two_series()}};
  save(figure, folder.path() / "a.svg");
  save(figure, folder.path() / "a.png");
  EXPECT_EQ(read_file(folder.path() / "a.svg", 1 << 20), to_svg(figure));
  EXPECT_EQ(read_file(folder.path() / "a.png", 1 << 20).substr(1, 3), "PNG");
  EXPECT_THROW(save(figure, folder.path() / "a.jpg"), Error);
}

}  // namespace
}  // namespace tempera::plot
