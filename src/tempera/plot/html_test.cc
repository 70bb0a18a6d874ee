#include "tempera/plot/html.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "tempera/base/base64.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/plot/csv.h"
#include "tempera/plot/style.h"
#include "tempera/plot/svg.h"
#include "tempera/plot/testing.h"
#include "tempera/plot/xml_check.h"

namespace tempera::plot {
namespace {

HtmlReport sample() {
  HtmlReport report("Focal & SSA <compared>");
  report.summary({.asked = "Is a < b?",
                  .answer = "<b>Yes</b> & no.",
                  .not_shown = {"what </dl> does", "more"}});
  report.heading("Results </h2><script>alert(1)</script>");
  report.paragraph("a < b && c > \"d\"");
  report.list({"one & two", "three", "run `a < b`, then `c", "``"});
  report.code("tempera compare --out 'x & y'");
  report.how_made("Tempera <1>", "tempera compare", "{\"steps\": \"</pre>\"}");
  report.table({.caption = "Accuracy, %",
                .header = {"method", "16 <entries>"},
                .rows = {{Cell::of("<softmax>"), Cell::of(71.26, 1.349, 1)},
                         {Cell::of("ssa"), Cell::of(99.5, std::nullopt, 1).emphasised()},
                         {Cell::of("none"), Cell::of(kNan, kNan, 1)}}});
  LineChart chart{.title = "t<i>tle", .series = {{.name = "a&b", .x = {1, 2}, .y = {3, 4}}}};
  report.figure({.panels = {chart}}, "caption & more");
  report.figure({.panels = {chart}}, "");
  return report;
}

TEST(HtmlTest, IsWellFormedAndEscaped) {
  const std::string html = sample().html();
  EXPECT_EQ(xml_fault(html), "");
  const auto has = [&](std::string_view part) { return html.find(part) != std::string::npos; };
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>\n"));
  EXPECT_TRUE(has("<title>Focal &amp; SSA &lt;compared&gt;</title>"));
  EXPECT_TRUE(has("<h1>Focal &amp; SSA &lt;compared&gt;</h1>"));
  EXPECT_FALSE(has("<script"));
  EXPECT_TRUE(has("<p>a &lt; b &amp;&amp; c &gt; &quot;d&quot;</p>"));
  EXPECT_TRUE(has("<th scope=\"col\" class=\"number\">16 &lt;entries&gt;</th>"));
  EXPECT_TRUE(has("<td class=\"number\">71.3 \u00b1 1.3</td>"));
  EXPECT_TRUE(has("<td class=\"number\"><strong>99.5</strong></td>"));
  EXPECT_TRUE(has("\u2013 \u00b1 \u2013"));
  EXPECT_TRUE(has("<p>Tempera &lt;1&gt;, <code>tempera compare</code>.</p>"));
  EXPECT_TRUE(has("<details><summary>The settings</summary>"));
  EXPECT_TRUE(has("<pre>{&quot;steps&quot;: &quot;&lt;/pre&gt;&quot;}</pre>"));
  EXPECT_TRUE(has("<li>one &amp; two</li>"));
  EXPECT_TRUE(has("<li>run <code>a &lt; b</code>, then `c</li>"));
  EXPECT_TRUE(has("<figcaption>caption &amp; more</figcaption>"));
  EXPECT_TRUE(has("<dd>Is a &lt; b?</dd>"));
  EXPECT_TRUE(has("<dd class=\"answer\">&lt;b&gt;Yes&lt;/b&gt; &amp; no.</dd>"));
  EXPECT_TRUE(has("<li>what &lt;/dl&gt; does</li>"));
  EXPECT_TRUE(has("prefers-color-scheme: dark"));
  EXPECT_TRUE(has("@media print"));
}

// The summary stands before all else.
TEST(HtmlTest, TheSummaryIsFirst) {
  const std::string html = sample().html();
  EXPECT_LT(html.find("class=\"summary\""), html.find("<h2"));
  EXPECT_EQ(sample().first_summary().asked, "Is a < b?");
  EXPECT_EQ(HtmlReport("empty").first_summary().answer, "");
}

TEST(HtmlTest, EveryFigureCanBeSavedWithItsNumbers) {
  const HtmlReport report = sample();
  const std::string html = report.html();
  size_t figures = 0;
  for (const Block& block : report.blocks()) {
    const auto* picture = std::get_if<Picture>(&block);
    if (!picture) continue;
    const auto link = [&](const std::string& kind, const std::string& type,
                          const std::string& content) {
      const std::span bytes(reinterpret_cast<const uint8_t*>(content.data()), content.size());
      return concat("<a download=\"focal-ssa-compared-", figures + 1, ".", kind,
                    "\" href=\"data:", type, ";charset=utf-8;base64,", encode_base64(bytes), "\">");
    };
    EXPECT_NE(html.find(link("svg", "image/svg+xml", to_svg(picture->figure))), std::string::npos);
    EXPECT_NE(html.find(link("csv", "text/csv", to_csv(picture->figure))), std::string::npos);
    ++figures;
  }
  EXPECT_EQ(figures, 2u);
}

TEST(HtmlTest, ThePagesColoursAreThoseOfTheCharts) {
  const std::string style(page_style());
  for (size_t i = 0; i < kSeriesColors; ++i)
    EXPECT_NE(style.find(concat("--series-", i + 1, ": ", hex(series_color(i)), ";")),
              std::string::npos)
        << i;
  for (const auto& [name, color] : {std::pair("--paper: ", kPaper),
                                    {"--ink: ", kInk},
                                    {"--muted: ", kMuted},
                                    {"--grid: ", kGrid}})
    EXPECT_NE(style.find(name + hex(color)), std::string::npos) << name;
}

// Text and graphics stand out from both backgrounds (WCAG: 4.5 to 1 and 3 to 1).
TEST(HtmlTest, ColoursStandOutInLightAndDark) {
  const auto luminance = [](const std::string& digits) {
    double sum = 0;
    const double weights[] = {0.2126, 0.7152, 0.0722};
    for (size_t i = 0; i < 3; ++i) {
      const double channel = std::stoi(digits.substr(2 * i, 2), nullptr, 16) / 255.0;
      sum += weights[i] *
             (channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  const std::string style(page_style());
  const auto check = [&](size_t begin, size_t end) {
    const std::string theme = style.substr(begin, end - begin);
    const auto color = [&](const std::string& name) {
      const size_t at = theme.find("--" + name + ": #");
      EXPECT_NE(at, std::string::npos) << name;
      return luminance(theme.substr(at + name.size() + 5, 6));
    };
    const auto contrast = [&](const std::string& name, const std::string& paper) {
      const double a = color(name), b = color(paper);
      return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05);
    };
    for (const char* text : {"ink", "muted", "accent"})
      for (const char* paper : {"paper", "shade"})
        EXPECT_GE(contrast(text, paper), 4.5) << text << " on " << paper;
    for (size_t i = 1; i <= kSeriesColors; ++i)
      EXPECT_GE(contrast(concat("series-", i), "paper"), 3) << i;
  };
  const size_t dark = style.find("@media screen"), chosen = style.find("@media screen {");
  check(0, dark);
  check(dark, chosen);
  check(chosen, style.size());
}

TEST(HtmlTest, NeedsNothingFromOutside) {
  std::string html = sample().html();
  for (const std::string& name :
       {std::string("http://www.w3.org/2000/svg"), std::string("http://www.w3.org/1999/xlink")})
    for (size_t at; (at = html.find(name)) != std::string::npos;) html.erase(at, name.size());
  for (const char* outside : {"http:", "https:", "url(", "@import", " src=", " id="})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

TEST(HtmlTest, RefusesRaggedTables) {
  HtmlReport report("t");
  EXPECT_THROW(report.table({.header = {"a", "b"}, .rows = {{Cell::of("only one")}}}), Error);
}

TEST(HtmlTest, Saves) {
  const TempFolder folder;
  sample().save(folder.path() / "report.html");
  EXPECT_EQ(read_file(folder.path() / "report.html", 1 << 24), sample().html());
  EXPECT_THROW(sample().save(folder.path() / "missing" / "report.html"), Error);
}

}  // namespace
}  // namespace tempera::plot
