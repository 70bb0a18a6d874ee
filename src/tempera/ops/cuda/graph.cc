#include "tempera/ops/graph.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/ops/cuda/cuda.h"

namespace tempera::ops {
namespace {

void check(cudaError_t status, const char* what) {
  TEMPERA_CHECK(status == cudaSuccess, what, ": ", cudaGetErrorString(status));
}

}  // namespace

struct CudaGraph::State {
  at::cuda::CUDAGraph graph;
};

bool CudaGraph::possible(const at::Device& device) { return cuda::has_kernels(device); }
CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(const std::function<void()>& warm_up, const std::function<void()>& body) {
  state_ = std::make_unique<State>();
  check(cudaDeviceSynchronize(), "waiting for the GPU");
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  warm_up();
  check(cudaDeviceSynchronize(), "the first pass on the GPU");
  // The graph takes memory of its own: what the warm-up had is free for it.
  c10::cuda::CUDACachingAllocator::emptyCache();
  state_->graph.capture_begin();
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    state_->graph.capture_end();
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
  if (!failure) return;
  state_.reset();
  std::rethrow_exception(failure);
}

void CudaGraph::replay() {
  TEMPERA_CHECK(state_, "a graph that holds nothing");
  state_->graph.replay();
}

struct Prefetch::State {
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  cudaEvent_t done = nullptr;
  std::vector<at::Tensor> tensors;

  State() { check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate"); }
  ~State() { cudaEventDestroy(done); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Prefetch::Prefetch() = default;
Prefetch::~Prefetch() = default;

void Prefetch::start(const std::vector<at::Tensor>& host) {
  if (!state_) state_ = std::make_unique<State>();
  const c10::cuda::CUDAStreamGuard guard(state_->stream);
  state_->tensors.clear();
  for (const at::Tensor& tensor : host)
    state_->tensors.push_back(
        tensor.defined() ? tensor.pin_memory().to(at::kCUDA, /*non_blocking=*/true) : tensor);
  check(cudaEventRecord(state_->done, state_->stream.stream()), "cudaEventRecord");
}

std::vector<at::Tensor> Prefetch::take() {
  TEMPERA_CHECK(state_, "nothing was copied to the GPU");
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  check(cudaStreamWaitEvent(stream.stream(), state_->done, 0), "cudaStreamWaitEvent");
  for (const at::Tensor& tensor : state_->tensors)
    if (tensor.defined()) tensor.record_stream(stream.unwrap());
  return std::move(state_->tensors);
}

}  // namespace tempera::ops
