#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/plot/chart.h"

namespace tempera::plot {

struct Cell {
  std::string text = {};
  bool number = false;  // aligned to the right
  bool strong = false;

  static Cell of(std::string_view text);
  // "mean ± spread"; the mean alone without a spread.
  static Cell of(double mean, std::optional<double> spread, int decimals);
  // The same cell, set in bold: the best of a column, say.
  Cell emphasised() const;
};

struct Table {
  std::string caption = {};
  std::vector<std::string> header = {};
  std::vector<std::vector<Cell>> rows = {};  // each as long as the header
};

// A report that is one file: no scripts, no links to anything outside, light or dark as the
// reader's system is. All text is escaped.
class HtmlReport {
 public:
  explicit HtmlReport(std::string_view title);

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void list(const std::vector<std::string>& items);
  void code(std::string_view text);
  void table(const Table& table);
  void figure(const Figure& figure, std::string_view caption);

  std::string html() const;
  void save(const std::filesystem::path& path) const;

 private:
  std::string title_, body_;
};

}  // namespace tempera::plot
