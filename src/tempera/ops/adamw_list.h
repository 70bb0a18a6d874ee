#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "tempera/ops/fused.h"

namespace tempera::ops {

// A parameter and its state, float32 on a GPU.
struct AdamWTensor {
  at::Tensor parameter, mean, square;
  double decay = 0;
  double rate_factor = 1;
  at::Tensor copy = {};  // bfloat16, which the update writes too; undefined: none
};

// AdamW of all parameters in one launch, and the norm of all their gradients, without waiting for
// the GPU. What changes from step to step lies in memory of the GPU, so that a graph can hold the
// launches.
class AdamWList {
 public:
  explicit AdamWList(std::vector<AdamWTensor> tensors);
  ~AdamWList();
  AdamWList(const AdamWList&) = delete;
  AdamWList& operator=(const AdamWList&) = delete;

  // The gradients are those that the parameters have now; they have to stay where they are.
  void set_gradients();
  // decay, and gradient_factor, are not read.
  void set_step(const AdamWStep& step);
  // result (2) = the norm, and the factor that brings it to `clip`; 0: no limit.
  void norm(double clip, const at::Tensor& result);
  // The update, times the factor in result[1]; none where that is not finite.
  void step(const at::Tensor& result);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tempera::ops
