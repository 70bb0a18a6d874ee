#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "tempera/nn/model.h"

namespace tempera::train {

// Copies of the weights that products read, in the type that the model computes in: a pass that
// finds them converts no weight, and gives their gradients in that type.
class WeightCopies {
 public:
  // Of linear layers, where they have another type.
  explicit WeightCopies(const nn::Model& model);

  // Undefined where the parameter has no copy.
  torch::Tensor of(const torch::Tensor& parameter) const;
  // Whether an operator of torch has changed a weight since the last refresh().
  bool stale() const;
  void refresh();

  // As long as it lives, the parameters are their copies.
  class InUse {
   public:
    explicit InUse(const WeightCopies& copies);
    ~InUse();
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    std::vector<torch::Tensor> parameters_, weights_;
  };

 private:
  struct Copy {
    torch::Tensor parameter, copy;
    int64_t version = 0;
  };
  std::vector<Copy> copies_;
};

}  // namespace tempera::train
