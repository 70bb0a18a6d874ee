#include <algorithm>
#include <cmath>
#include <map>

#include "tempera/study/scaling/report.h"
#include "tempera/study/statistics.h"

namespace tempera::study::scaling {
namespace {

double million(double parameters) { return parameters / 1e6; }

// The slice with the most cells: what the study is mainly of.
const Slice* main_slice(const Analysis& analysis) {
  const Slice* most = nullptr;
  for (const Slice& slice : analysis.slices)
    if (!most || slice.cells.size() > most->cells.size()) most = &slice;
  return most;
}

double mean_loss(const std::vector<double>& losses) {
  std::vector<double> finite;
  for (const double loss : losses)
    if (std::isfinite(loss)) finite.push_back(loss);
  return finite.empty() ? std::nan("") : mean(finite);
}

// Of each size, the cell with the most tokens.
std::vector<size_t> longest_trained(const Slice& slice) {
  std::map<double, size_t> by_size;
  for (size_t i = 0; i < slice.cells.size(); ++i) {
    const auto [place, is_new] = by_size.emplace(slice.cells[i].parameters, i);
    if (!is_new && slice.cells[i].tokens > slice.cells[place->second].tokens) place->second = i;
  }
  std::vector<size_t> list;
  for (const auto& [size, i] : by_size) list.push_back(i);
  return list;
}

std::vector<double> size_ticks(const Slice& slice) {
  std::vector<double> ticks;
  for (const size_t i : longest_trained(slice)) ticks.push_back(million(slice.cells[i].parameters));
  return ticks;
}

plot::LineChart loss_chart(const Slice& slice, const std::vector<std::string>& methods) {
  plot::LineChart chart{
      .title = "Loss by size, each with the most tokens; dashed: the law",
      .x = {.label = "million parameters", .log = true, .ticks = size_ticks(slice)},
      .y = {.label = "nats a token"}};
  for (size_t m = 0; m < methods.size(); ++m) {
    plot::Series measured{.name = methods[m], .markers = true, .color = plot::series_color(m)};
    plot::Series fitted{.dashed = true, .color = plot::series_color(m)};
    for (const size_t i : longest_trained(slice)) {
      const LossCell& cell = slice.cells[i];
      measured.x.push_back(million(cell.parameters));
      measured.y.push_back(mean_loss(cell.losses[m]));
      if (!slice.laws.laws[m]) continue;
      fitted.x.push_back(million(cell.parameters));
      fitted.y.push_back(slice.laws.laws[m]->law.loss(cell.parameters, cell.tokens));
    }
    measured.line = fitted.x.empty();
    chart.series.push_back(std::move(measured));
    if (!fitted.x.empty()) chart.series.push_back(std::move(fitted));
  }
  return chart;
}

plot::LineChart residual_chart(const Slice& slice, const std::vector<std::string>& methods) {
  plot::LineChart chart{
      .title = "What the law leaves: measured loss over fitted",
      .x = {.label = "million parameters", .log = true, .ticks = size_ticks(slice)},
      .y = {.label = "%"},
      .guides = {{.at = 0, .label = "", .vertical = false}}};
  for (size_t m = 0; m < methods.size(); ++m) {
    if (!slice.laws.laws[m]) continue;
    plot::Series series{.name = methods[m], .line = false, .markers = true};
    series.color = plot::series_color(m);
    for (size_t i = 0; i < slice.cells.size(); ++i) {
      series.x.push_back(million(slice.cells[i].parameters));
      series.y.push_back(100 * std::expm1(slice.laws.laws[m]->residuals[i]));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Against the first method, of each size with the most tokens.
plot::LineChart difference_chart(const Slice& slice, const Analysis& analysis) {
  plot::LineChart chart{
      .title = "Loss less that of " + analysis.methods[0],
      .x = {.label = "million parameters", .log = true, .ticks = size_ticks(slice)},
      .y = {.label = "nats a token"},
      .guides = {{.at = 0, .label = "", .vertical = false}}};
  bool intervals = false;
  for (size_t m = 1; m < analysis.methods.size(); ++m) {
    plot::Series series{
        .name = analysis.methods[m], .markers = true, .color = plot::series_color(m)};
    for (const size_t i : longest_trained(slice))
      for (const Difference& difference : analysis.differences) {
        const Cell& cell = difference.cell;
        if (cell.method != analysis.methods[m] || cell.context != slice.context ||
            cell.qk_norm != slice.qk_norm || cell.shape != slice.shapes[i] ||
            static_cast<double>(cell.tokens) != slice.cells[i].tokens)
          continue;
        series.x.push_back(million(slice.cells[i].parameters));
        series.y.push_back(difference.mean);
        const double half = difference.seeds.size() > 1 ? difference.half_width : std::nan("");
        series.low.push_back(difference.mean - half);
        series.high.push_back(difference.mean + half);
      }
    const bool known =
        std::ranges::any_of(series.low, [](double value) { return std::isfinite(value); });
    if (!known) series.low = series.high = {};
    intervals = intervals || known;
    chart.series.push_back(std::move(series));
  }
  if (intervals) chart.title += ", with 95 % intervals";
  return chart;
}

// Of the largest size of the slice, with the most tokens.
plot::LineChart length_chart(const Slice& slice, const Analysis& analysis, bool recall) {
  plot::LineChart chart{.title = recall ? "Random tokens that come again, continued rightly"
                                        : "Loss past the trained length",
                        .x = {.label = "tokens of a row", .log = true},
                        .y = {.label = recall ? "%" : "nats a token"}};
  const size_t largest = longest_trained(slice).back();
  for (size_t m = 0; m < analysis.methods.size(); ++m)
    for (const ByLength& row : analysis.lengths) {
      if (row.cell.method != analysis.methods[m] || row.cell.context != slice.context ||
          row.cell.qk_norm != slice.qk_norm || row.cell.shape != slice.shapes[largest] ||
          static_cast<double>(row.cell.tokens) != slice.cells[largest].tokens)
        continue;
      plot::Series series{.name = row.cell.method, .markers = true, .color = plot::series_color(m)};
      for (size_t i = 0; i < row.lengths.size(); ++i) {
        series.x.push_back(static_cast<double>(row.lengths[i]));
        series.y.push_back(recall ? 100 * row.recall[i] : row.losses[i]);
      }
      chart.x.ticks = series.x;
      chart.series.push_back(std::move(series));
    }
  return chart;
}

plot::LineChart entropy_chart(const Analysis& analysis) {
  plot::LineChart chart{.title = "Does entropy tell who extrapolates? A point a model",
                        .x = {.label = "entropy at the trained length, share of its largest"},
                        .y = {.label = "growth of the loss, nats"}};
  for (size_t m = 0; m < analysis.methods.size(); ++m) {
    plot::Series series{.name = analysis.methods[m], .line = false, .markers = true};
    series.color = plot::series_color(m);
    for (const EntropyPoint& point : analysis.entropy)
      if (point.method == analysis.methods[m]) {
        series.x.push_back(point.entropy);
        series.y.push_back(point.growth);
      }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// The first size that was trained at several lengths.
std::optional<plot::LineChart> context_chart(const Analysis& analysis) {
  if (analysis.context_gains.empty()) return std::nullopt;
  const ContextGain& first = analysis.context_gains.front();
  plot::LineChart chart{.title = "Loss less that of " + analysis.methods[0] + ", by trained length",
                        .x = {.label = "trained length, tokens", .log = true},
                        .y = {.label = "nats a token"},
                        .guides = {{.at = 0, .label = "", .vertical = false}}};
  for (size_t m = 1; m < analysis.methods.size(); ++m)
    for (const ContextGain& gain : analysis.context_gains) {
      if (gain.method != analysis.methods[m] || gain.shape != first.shape ||
          gain.tokens != first.tokens || gain.qk_norm != first.qk_norm)
        continue;
      plot::Series series{.name = gain.method, .markers = true, .color = plot::series_color(m)};
      for (const int64_t context : gain.contexts) series.x.push_back(static_cast<double>(context));
      series.y = gain.differences;
      chart.x.ticks = series.x;
      chart.series.push_back(std::move(series));
    }
  return chart;
}

}  // namespace

plot::Figure figure(const Shown& study) {
  plot::Figure made{.title = "", .panels = {}, .columns = 2};
  const Analysis& analysis = study.analysis;
  const Slice* slice = main_slice(analysis);
  if (!slice) return made;
  made.panels.emplace_back(loss_chart(*slice, analysis.methods));
  if (analysis.methods.size() > 1) made.panels.emplace_back(difference_chart(*slice, analysis));
  if (std::ranges::any_of(slice->laws.laws, [](const auto& law) { return law.has_value(); }))
    made.panels.emplace_back(residual_chart(*slice, analysis.methods));
  made.panels.emplace_back(length_chart(*slice, analysis, /*recall=*/false));
  made.panels.emplace_back(length_chart(*slice, analysis, /*recall=*/true));
  if (!analysis.entropy.empty()) made.panels.emplace_back(entropy_chart(analysis));
  if (auto chart = context_chart(analysis)) made.panels.emplace_back(*std::move(chart));
  return made;
}

}  // namespace tempera::study::scaling
