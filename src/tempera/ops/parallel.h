#pragma once

#include "tempera/base/parallel.h"

namespace tempera::ops {

// ATen's own threads (at::get_num_threads of them): a second pool would fight with them for the
// cores. Serial inside a parallel region.
//
// at::parallel_for itself is serial in a file that is compiled without OpenMP, and compiling with
// it would bring a second OpenMP runtime beside the one that torch carries. So the work goes
// through TensorIterator, which is compiled inside libtorch.
class AtenParallel final : public Parallel {
 public:
  AtenParallel();
  int workers() const override { return workers_; }
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body) override;

 private:
  int workers_;
};

}  // namespace tempera::ops
