#pragma once

#include <string>
#include <vector>

namespace tempera::bench {

// Columns aligned to the right, two spaces apart.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
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

}  // namespace tempera::bench
