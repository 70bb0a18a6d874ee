#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tempera {

// A table for a terminal: columns two spaces apart, the first aligned to the left, the others to
// the right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row);  // as many cells as the head has
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "1.23": digits behind the point.
std::string fixed(double value, int digits);
// "3e-07"
std::string scientific(double value);
// "12.3 MB"
std::string megabytes(int64_t bytes);

}  // namespace tempera
