// A program without the CUDA kernels.
#include "tempera/base/error.h"
#include "tempera/ops/adamw_list.h"
#include "tempera/ops/cuda.h"
#include "tempera/ops/cuda_graph.h"
#include "tempera/ops/fused_passes.h"

namespace tempera::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error("this program is built without CUDA kernels; build it with TEMPERA_WITH_CUDA");
}

}  // namespace

namespace cuda {

bool has_kernels(const at::Device& /*device*/) { return false; }
bool takes(const AttentionArgs& /*args*/) { return false; }
bool takes(const DecodeArgs& /*args*/) { return false; }
bool takes(const at::Tensor& /*x*/, int64_t /*size*/) { return false; }
bool prefers_cudnn(const at::Tensor& /*x*/) { return false; }
AttentionResult attention(const AttentionArgs& /*args*/) { refuse(); }
std::vector<at::Tensor> attention_backward(const BackwardArgs& /*args*/) { refuse(); }
AttentionResult decode(const DecodeArgs& /*args*/) { refuse(); }
at::Tensor embedding(const at::Tensor& /*table*/, const at::Tensor& /*ids*/,
                     at::ScalarType /*type*/) {
  refuse();
}
std::vector<at::Tensor> prologue(const PrologueArgs& /*args*/) { refuse(); }

}  // namespace cuda

const FusedPasses kCudaPasses = {};

struct AdamWList::State {};
AdamWList::AdamWList(std::vector<AdamWTensor> /*tensors*/) { refuse(); }
AdamWList::~AdamWList() = default;
void AdamWList::set_gradients() { refuse(); }
void AdamWList::set_step(const AdamWStep& /*step*/) { refuse(); }
void AdamWList::norm(double /*clip*/, const at::Tensor& /*result*/) { refuse(); }
void AdamWList::step(const at::Tensor& /*result*/) { refuse(); }

struct CudaGraph::State {};
CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;
void CudaGraph::capture(const std::function<void()>& /*warm_up*/,
                        const std::function<void()>& /*body*/) {
  refuse();
}
void CudaGraph::replay() { refuse(); }

struct Prefetch::State {};
Prefetch::Prefetch() = default;
Prefetch::~Prefetch() = default;
void Prefetch::start(const std::vector<at::Tensor>& /*host*/) { refuse(); }
std::vector<at::Tensor> Prefetch::take() { refuse(); }

}  // namespace tempera::ops
