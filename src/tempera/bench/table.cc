#include "tempera/bench/table.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "tempera/base/error.h"

namespace tempera::bench {

void Table::add(std::vector<std::string> row) {
  TEMPERA_CHECK(row.size() == rows_[0].size(), "a row of ", row.size(), " cells in a table of ",
                rows_[0].size(), " columns");
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i)
      text += (i == 0 ? "" : "  ") + std::string(widths[i] - row[i].size(), ' ') + row[i];
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

}  // namespace tempera::bench
