#include "tempera/train/loss_chart.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"

namespace tempera::train {
namespace {

constexpr size_t kLeastColumns = 10;

std::string loss_label(double loss) {
  const double size = std::abs(loss);
  return size < 10 ? fixed(loss, 3) : size < 1e4 ? fixed(loss, 1) : scientific(loss);
}

std::string step_label(double step) {
  return std::abs(step) < 1e15 ? count_text(std::llround(step)) : scientific(step);
}

}  // namespace

void LossChart::add(char mark, double step, double loss) {
  if (std::isfinite(step) && std::isfinite(loss)) points_.push_back({mark, step, loss});
}

std::vector<std::string> LossChart::lines() const {
  if (points_.empty() || rows_ < 2) return {};
  const auto [first, last] = std::ranges::minmax(points_, {}, &Point::step);
  if (!(last.step > first.step)) return {};
  const auto [lowest, highest] = std::ranges::minmax(points_, {}, &Point::loss);
  const std::string top = loss_label(highest.loss), bottom = loss_label(lowest.loss);
  const size_t label = std::max(top.size(), bottom.size());
  if (columns_ < label + 2 + kLeastColumns) return {};
  const size_t width = columns_ - label - 2;

  // Sums of the losses by mark and column, in the order in which the marks came.
  std::vector<std::pair<char, std::map<size_t, std::pair<double, double>>>> marks;
  for (const Point& point : points_) {
    auto found = std::ranges::find(marks, point.mark, &decltype(marks)::value_type::first);
    if (found == marks.end()) found = marks.insert(marks.end(), {point.mark, {}});
    // Halves: the distance of two large numbers may be infinite.
    const double share = (point.step / 2 - first.step / 2) / (last.step / 2 - first.step / 2);
    auto& [sum, count] = found->second[static_cast<size_t>(share * static_cast<double>(width - 1))];
    count += 1;
    sum += (point.loss - sum) / count;
  }
  std::vector<std::string> grid(static_cast<size_t>(rows_), std::string(width, ' '));
  const double range = highest.loss / 2 - lowest.loss / 2;
  for (const auto& [mark, columns] : marks)
    for (const auto& [column, mean] : columns) {
      const double height = range > 0 ? (mean.first / 2 - lowest.loss / 2) / range : 0;
      const auto row =
          static_cast<size_t>(std::lround((1 - std::clamp(height, 0.0, 1.0)) * (rows_ - 1)));
      grid[row][column] = mark;
    }
  std::vector<std::string> lines;
  for (size_t row = 0; row < grid.size(); ++row) {
    const std::string& text = row == 0 ? top : row + 1 == grid.size() ? bottom : "";
    lines.push_back(std::string(label - text.size(), ' ') + text + " |" + grid[row]);
  }
  std::string axis = step_label(first.step);
  const std::string end = step_label(last.step);
  if (axis.size() + end.size() < width)
    axis += std::string(width - axis.size() - end.size(), ' ') + end;
  lines.push_back(std::string(label + 2, ' ') + axis);
  return lines;
}

}  // namespace tempera::train
