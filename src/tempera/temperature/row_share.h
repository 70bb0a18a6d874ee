#pragma once

#include <torch/types.h>

namespace tempera {

// How a process that has some rows of every sequence, while others have the rest, reaches all of
// them.
class RowShare {
 public:
  virtual ~RowShare() = default;
  // Of all rows of the sequences, (B, T, ...), those that are here, (B, rows, ...).
  virtual torch::Tensor own(const torch::Tensor& all) const = 0;
  // All rows, from the own ones (B, rows, ...) of every process, which all call it. Gradients go to
  // whom the rows belong.
  virtual torch::Tensor whole(const torch::Tensor& own) const = 0;
};

}  // namespace tempera
