#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace tempera::ops {

// Work for a GPU, recorded once and started again with one call.
class CudaGraph {
 public:
  // Whether this program has kernels for the device: torch's operators wait for it.
  static bool possible(const at::Device& device);

  CudaGraph();
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Runs warm_up, so that whatever is made once is there, and records what body starts. Both run
  // on a stream of their own. body must not wait for the GPU; tensors that outlive it keep their
  // places.
  void capture(const std::function<void()>& warm_up, const std::function<void()>& body);
  // Starts it on the current stream.
  void replay();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Copies to the GPU on a stream of their own, while it works.
class Prefetch {
 public:
  Prefetch();
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  void start(const std::vector<at::Tensor>& host);
  // What start() copied; work that is started from now on waits for it.
  std::vector<at::Tensor> take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tempera::ops
