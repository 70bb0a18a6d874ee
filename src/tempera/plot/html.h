#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tempera/plot/chart.h"

namespace tempera::plot {

struct Cell {
  std::string text = {};
  bool number = false;  // aligned to the right
  bool strong = false;
  bool wide = false;  // a sentence, over several lines
  size_t part = 0;    // of the page, which the cell leads to; 0: none

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

// What a report says first, in plain words: what was asked, the answer in a sentence or two, and
// what it does not show.
struct Summary {
  std::string asked = {}, answer = {};
  std::vector<std::string> not_shown = {};
};

struct Heading {
  std::string text;
  int level = 2;
  size_t part = 0;  // which part of the page begins here; 0: none
};
struct Paragraph {
  std::string text;
};
struct List {
  std::vector<std::string> items;
};
struct Code {
  std::string text;
  std::string folded = {};  // under these words, until they are clicked; not printed
};
struct Picture {
  Figure figure;
  std::string caption;
};
using Block = std::variant<Summary, Heading, Paragraph, List, Code, Table, Picture>;

// What the first lines of every page have, to tell it from other files.
inline constexpr std::string_view kGenerator =
    "<meta name=\"generator\" content=\"tempera report\"/>";

// A report that is one file: no scripts, nothing from outside, light or dark as the reader's system
// is, and light on paper. Every figure can be saved as SVG and its numbers as CSV. All text is
// escaped.
class HtmlReport {
 public:
  explicit HtmlReport(std::string_view title) : title_(title) {}

  void summary(Summary summary);
  void heading(std::string_view text, int level = 2);
  // Begins the n-th part of a page, counted from 1.
  void part(std::string_view text, size_t n);
  void paragraph(std::string_view text);
  void list(const std::vector<std::string>& items);
  void code(std::string_view text);
  void table(const Table& table);
  void figure(const Figure& figure, std::string_view caption);
  // The last part of a report: the program, the command and its settings.
  void how_made(std::string_view program, std::string_view command, std::string_view settings);
  void add(Block block) { blocks_.push_back(std::move(block)); }

  const std::string& title() const { return title_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  // The first one; empty where there is none.
  Summary first_summary() const;

  std::string html() const;
  void save(const std::filesystem::path& path) const;

 private:
  std::string title_;
  std::vector<Block> blocks_;
};

}  // namespace tempera::plot
