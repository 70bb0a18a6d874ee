// A program without the CUDA kernels.
#include "tempera/base/error.h"
#include "tempera/ops/adamw_list.h"
#include "tempera/ops/cuda/cuda.h"
#include "tempera/ops/graph.h"

namespace tempera::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error("this program is built without CUDA kernels; build it with TEMPERA_WITH_CUDA");
}

}  // namespace

namespace cuda {

const Backend* backend_of(const at::Device& /*device*/) { return nullptr; }
std::vector<at::Tensor> prologue(const PrologueArgs& /*args*/) { refuse(); }

}  // namespace cuda

struct AdamWList::State {};
AdamWList::AdamWList(std::vector<AdamWTensor> /*tensors*/) { refuse(); }
AdamWList::~AdamWList() = default;
void AdamWList::set_gradients() { refuse(); }
void AdamWList::set_step(const AdamWStep& /*step*/) { refuse(); }
void AdamWList::norm(double /*clip*/, const at::Tensor& /*result*/) { refuse(); }
void AdamWList::step(const at::Tensor& /*result*/) { refuse(); }

struct CudaGraph::State {};
bool CudaGraph::possible(const at::Device& /*device*/) { return false; }
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
