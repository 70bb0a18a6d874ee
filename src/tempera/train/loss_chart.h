#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tempera::train {

// Losses by step as lines of characters: where a column stands for several steps, their mean.
class LossChart {
 public:
  // Of that many columns and rows, the labels of the axes beside.
  LossChart(size_t columns, int rows) : columns_(columns), rows_(rows) {}

  // The points of a mark by rising step; a mark that is added later is drawn over the others. What
  // is not finite is left out.
  void add(char mark, double step, double loss);
  // None where there are fewer than two steps, or there is no room.
  std::vector<std::string> lines() const;

 private:
  struct Point {
    char mark;
    double step, loss;
  };

  size_t columns_;
  int rows_;
  std::vector<Point> points_;
};

}  // namespace tempera::train
