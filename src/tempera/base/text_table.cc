#include "tempera/base/text_table.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "tempera/base/error.h"

namespace tempera {

void TextTable::add(std::vector<std::string> row) {
  TEMPERA_CHECK(row.size() == rows_[0].size(), "a row of ", row.size(), " cells in a table of ",
                rows_[0].size(), " columns");
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
  // Of a character that is several bytes, such as "±", only the first counts.
  const auto width = [](const std::string& text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      text += i == 0 ? row[i] + space : "  " + space + row[i];
    }
    text += '\n';
  }
  return text;
}

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return std::move(text).str();
}

std::string scientific(double value) {
  std::ostringstream text;
  text << std::scientific << std::setprecision(0) << value;
  return std::move(text).str();
}

std::string megabytes(int64_t bytes) { return fixed(static_cast<double>(bytes) / 1e6, 1) + " MB"; }

}  // namespace tempera
