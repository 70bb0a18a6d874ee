#include "tempera/plot/join.h"

#include <algorithm>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::plot {
namespace {

// More curves in one chart tell nothing apart.
constexpr size_t kMostCurves = 16;

std::vector<const LineChart*> line_charts(const HtmlReport& report) {
  std::vector<const LineChart*> charts;
  for (const Block& block : report.blocks())
    if (const auto* picture = std::get_if<Picture>(&block))
      for (const Chart& panel : picture->figure.panels)
        if (const auto* chart = std::get_if<LineChart>(&panel)) charts.push_back(chart);
  return charts;
}

bool share_axes(const LineChart& a, const LineChart& b) {
  const auto same = [](const Axis& one, const Axis& other) {
    return one.label == other.label && one.log == other.log;
  };
  return a.title == b.title && same(a.x, b.x) && same(a.y, b.y);
}

const LineChart* chart_like(const LineChart& chart, const HtmlReport& report) {
  for (const LineChart* other : line_charts(report))
    if (share_axes(chart, *other)) return other;
  return nullptr;
}

// The charts of several reports in one, which bears the names of the reports.
struct Common {
  LineChart chart;
  size_t reports = 0;
};

// A report's own curves, or the last of them alone: of a training that is what is held out.
enum class Curves { kAll, kLast };

Common merge(const LineChart& like, const std::vector<NamedReport>& reports, Curves curves) {
  Common common{
      .chart = {
          .title = like.title,
          .x = {.label = like.x.label, .log = like.x.log},
          .y = {.label = like.y.label, .log = like.y.log, .min = like.y.min, .max = like.y.max}}};
  for (const auto& [name, report] : reports) {
    const LineChart* own = chart_like(like, report);
    if (!own) continue;
    ++common.reports;
    if (own->y.min != like.y.min) common.chart.y.min.reset();
    if (own->y.max != like.y.max) common.chart.y.max.reset();
    const size_t first = curves == Curves::kAll || own->series.empty() ? 0 : own->series.size() - 1;
    for (size_t i = first; i < own->series.size(); ++i) {
      Series series = own->series[i];
      series.name = own->series.size() == 1 ? name : concat(name, ": ", series.name);
      series.color.reset();
      series.dashed = common.chart.series.size() >= kSeriesColors;
      common.chart.series.push_back(std::move(series));
    }
  }
  return common;
}

// A report's block as a part of a longer page.
Block demoted(Block block) {
  if (auto* heading = std::get_if<Heading>(&block)) ++heading->level;
  return block;
}

}  // namespace

Figure common_charts(const std::vector<NamedReport>& reports) {
  Figure figure{.columns = 2};
  std::vector<const LineChart*> seen;
  for (const auto& [name, report] : reports)
    for (const LineChart* chart : line_charts(report)) {
      if (std::ranges::any_of(seen, [&](const auto* one) { return share_axes(*one, *chart); }))
        continue;
      seen.push_back(chart);
      Common common = merge(*chart, reports, Curves::kAll);
      if (common.chart.series.size() > kMostCurves) common = merge(*chart, reports, Curves::kLast);
      if (common.reports > 1 && common.chart.series.size() <= kMostCurves)
        figure.panels.emplace_back(std::move(common.chart));
    }
  return figure;
}

HtmlReport join(const std::vector<NamedReport>& reports) {
  HtmlReport page(concat(reports.size(), " runs"));
  Table answers{.header = {"run", "what it is", "what was asked", "the answer"}};
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto& [name, report] = reports[i];
    const Summary summary = report.first_summary();
    answers.rows.push_back({Cell{.text = name, .part = i + 1}, Cell::of(report.title()),
                            Cell{.text = summary.asked, .wide = true},
                            Cell{.text = summary.answer, .wide = true}});
  }
  page.table(answers);
  if (Figure common = common_charts(reports); !common.panels.empty()) {
    page.heading("In common");
    page.figure(common,
                "Curves of several runs in one chart, where their charts have the same axes. Runs "
                "on different data or with different tokens are not comparable by their loss.");
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    page.part(concat(reports[i].name, ": ", reports[i].report.title()), i + 1);
    for (const Block& block : reports[i].report.blocks()) page.add(demoted(block));
  }
  return page;
}

}  // namespace tempera::plot
