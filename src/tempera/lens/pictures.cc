#include "tempera/lens/pictures.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/lens/weights.h"
#include "tempera/ops/torch.h"

namespace tempera::lens {
namespace {

using torch::Tensor;

constexpr int64_t kPictureCells = 256, kMostPoints = 128;

std::vector<double> values_of(const Tensor& tensor) {
  const Tensor all = tensor.to(torch::kFloat64).contiguous().flatten();
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

// (attentions, heads) of a subject whose attentions have as many heads each.
Tensor overview_of(const Subject& subject, Metric metric) {
  std::vector<Tensor> rows;
  for (const auto& attention : subject.view.attentions)
    rows.push_back(attention.over_rows(metric).to(torch::kFloat64));
  return torch::stack(rows);
}

std::string attention_label(const Subject& subject, size_t index) {
  const Attention& attention = subject.view.attentions[index];
  const std::string layer = std::to_string(attention.layer);
  return subject.texts.size() == 1 ? layer : concat(role_name(attention.role), " ", layer);
}

plot::HeatMap overview_map(const Subject& subject, const std::string& title, const Tensor& values) {
  plot::HeatMap map{.title = title, .x_label = "head", .y_label = "layer"};
  map.rows = static_cast<size_t>(values.size(0));
  map.columns = static_cast<size_t>(values.size(1));
  map.values = values_of(values);
  for (size_t row = 0; row < map.rows; ++row)
    map.row_labels.push_back(attention_label(subject, row));
  for (size_t column = 0; column < map.columns; ++column)
    map.column_labels.push_back(std::to_string(column));
  return map;
}

plot::Figure overview(std::span<const Subject> subjects) {
  plot::Figure figure{.title = "All heads", .columns = subjects.size() == 1 ? 2U : 3U};
  const auto layers = static_cast<double>(subjects[0].view.attentions.size());
  figure.panel_height = std::clamp(120 + 14 * layers, 240.0, 700.0);
  const bool differ = subjects.size() > 1 && same_heads(subjects[0], subjects[1]);
  if (subjects.size() > 1 && !differ) figure.columns = 2;
  for (const Metric metric : kMetrics) {
    const std::string label(name_of(metric).label);
    for (const auto& subject : subjects)
      figure.panels.emplace_back(
          overview_map(subject, subjects.size() == 1 ? label : concat(label, ": ", subject.name),
                       overview_of(subject, metric)));
    if (!differ) continue;
    auto map = overview_map(subjects[1], label + ": second less first",
                            overview_of(subjects[1], metric) - overview_of(subjects[0], metric));
    double most = 1e-6;
    for (const double value : map.values)
      if (std::isfinite(value)) most = std::max(most, std::abs(value));
    map.min = -most;
    map.max = most;
    map.scale = plot::ColorScale::kDiverging;
    figure.panels.emplace_back(std::move(map));
  }
  return figure;
}

// The mean over all heads, of rows in bins.
plot::Series by_position(const Subject& subject, Metric metric) {
  Tensor sum;
  int64_t heads = 0;
  for (const auto& attention : subject.view.attentions) {
    if (attention.rows() != subject.view.attentions.back().rows()) continue;
    const Tensor part = attention.metric(metric).to(torch::kFloat64).sum(0);
    sum = sum.defined() ? sum + part : part;
    heads += attention.heads();
  }
  const Tensor mean = sum / static_cast<double>(heads);
  plot::Series series{.name = subject.name};
  const int64_t rows = mean.size(0), points = std::min(rows, kMostPoints);
  for (int64_t i = 0; i < points; ++i) {
    const int64_t first = i * rows / points, end = (i + 1) * rows / points;
    series.x.push_back(static_cast<double>(first + end - 1) / 2 + 1);
    series.y.push_back(mean.narrow(0, first, end - first).mean().item<double>());
  }
  return series;
}

plot::Figure positions(std::span<const Subject> subjects) {
  plot::Figure figure{.title = "By position, mean over all heads", .columns = 2};
  for (const Metric metric : {Metric::kEntropy, Metric::kFirst, Metric::kTemperature}) {
    plot::LineChart chart{.title = std::string(name_of(metric).label)};
    chart.x.label = "position";
    for (const auto& subject : subjects) chart.series.push_back(by_position(subject, metric));
    if (metric == Metric::kEntropy) {
      plot::Series guide{.name = "ln n, as much as can be",
                         .x = chart.series[0].x,
                         .dashed = true,
                         .color = plot::kMuted};
      const Attention& shown = subjects[0].view.attentions.back();
      for (const double n : guide.x)
        guide.y.push_back(std::log(shown.causal ? n : static_cast<double>(shown.keys())));
      chart.series.push_back(std::move(guide));
    }
    figure.panels.emplace_back(std::move(chart));
  }
  return figure;
}

plot::Figure head_map(std::span<const Subject> subjects, HeadName name) {
  plot::Figure figure{.title = concat("Attention ", name.attention, ", head ", name.head),
                      .columns = subjects.size(),
                      .panel_width = 560,
                      .panel_height = 560};
  for (const auto& subject : subjects) {
    const Attention& attention = subject.view.attentions.at(static_cast<size_t>(name.attention));
    const int64_t longest = std::max(attention.rows(), attention.keys());
    const int64_t cell = (longest + kPictureCells - 1) / kPictureCells;
    const Tensor cells =
        maxima(attention, name.head, {0, attention.rows()}, {0, attention.keys()}, cell);
    plot::HeatMap map{.title = subject.name,
                      .x_label = cell == 1 ? "key" : concat("key, in cells of ", cell),
                      .y_label = cell == 1 ? "query" : concat("query, in cells of ", cell)};
    map.rows = static_cast<size_t>(cells.size(0));
    map.columns = static_cast<size_t>(cells.size(1));
    // Weights span orders of magnitude.
    map.values = values_of(cells.clamp_min(1e-4).log10());
    map.min = -4;
    map.max = 0;
    map.scale_label = "log10 of the largest weight";
    figure.panels.emplace_back(std::move(map));
  }
  return figure;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

HeadName parse_head(const std::string& name, const Subject& subject) {
  const size_t point = name.find('.');
  const auto attention = whole_number(std::string_view(name).substr(0, point));
  const auto head = point == std::string::npos
                        ? std::nullopt
                        : whole_number(std::string_view(name).substr(point + 1));
  if (!attention || !head)
    throw UsageError(concat("--draw ", name, ": expected LAYER.HEAD, both from 0, as in 2.5"));
  const auto count = std::ssize(subject.view.attentions);
  if (*attention < 0 || *attention >= count)
    throw UsageError(concat("--draw ", name, ": the model has layers 0 to ", count - 1));
  const int64_t heads = subject.view.attentions[static_cast<size_t>(*attention)].heads();
  if (*head < 0 || *head >= heads)
    throw UsageError(concat("--draw ", name, ": the layer has heads 0 to ", heads - 1));
  return {*attention, *head};
}

std::vector<std::pair<std::string, plot::Figure>> pictures(std::span<const Subject> subjects,
                                                           std::span<const HeadName> heads) {
  std::vector<std::pair<std::string, plot::Figure>> made;
  made.emplace_back("overview", overview(subjects));
  made.emplace_back("position", positions(subjects));
  for (const HeadName& name : heads)
    made.emplace_back(concat("head-", name.attention, "-", name.head), head_map(subjects, name));
  return made;
}

}  // namespace tempera::lens
