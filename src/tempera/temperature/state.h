#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace tempera {

// What a method keeps of every cached row: `width` numbers a position, under the same rules as the
// keys and values beside it. Because each position has its own numbers, a truncated, forked or
// re-used prefix is exact.
class MethodState {
 public:
  MethodState(int64_t batch, int64_t width) : width_(width), lengths_(static_cast<size_t>(batch)) {}

  int64_t width() const { return width_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }

  // (B, width) of the last row of every sequence, zeros where a sequence is empty; undefined when
  // all are or width is 0.
  torch::Tensor last() const;
  // Adds the rows (B, T, width) that a method returned to the end of every sequence. With width 0
  // nothing is kept.
  void append(const torch::Tensor& rows);
  // Forgets the rows from `length` on, in every sequence or each in its own.
  void truncate(int64_t length);
  void truncate(const std::vector<int64_t>& lengths);
  // An independent copy.
  MethodState fork() const;
  // An independent copy of the named sequences in that order: beams, or a batch that loses a
  // finished sequence.
  MethodState select(const std::vector<int64_t>& sequences) const;

 private:
  void reserve(int64_t rows, const torch::TensorOptions& options);

  int64_t width_;
  std::vector<int64_t> lengths_;
  torch::Tensor values_;  // (B, capacity, width), float64
};

}  // namespace tempera
