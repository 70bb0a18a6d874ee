#include "tempera/plot/html.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/plot/testing.h"
#include "tempera/plot/xml_check.h"

namespace tempera::plot {
namespace {

HtmlReport sample() {
  HtmlReport report("Focal & SSA <compared>");
  report.heading("Results </h2><script>alert(1)</script>");
  report.paragraph("a < b && c > \"d\"");
  report.list({"one & two", "three"});
  report.code("tempera compare --out 'x & y'");
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
  EXPECT_TRUE(has("<li>one &amp; two</li>"));
  EXPECT_TRUE(has("<figcaption>caption &amp; more</figcaption>"));
  EXPECT_TRUE(has("prefers-color-scheme: dark"));
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
