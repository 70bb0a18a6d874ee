#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <span>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/fused.h"
#include "tempera/ops/adamw_list.h"
#include "tempera/ops/cuda/stream.h"

namespace tempera::ops {
namespace {

namespace kc = kernels::cuda;

at::Tensor bytes_on(const at::Device& device, size_t size) {
  return at::empty({static_cast<int64_t>(size)},
                   at::TensorOptions().dtype(at::kByte).device(device));
}

kernels::BFloat16* copy_of(const AdamWTensor& t) {
  if (!t.copy.defined()) return nullptr;
  TEMPERA_CHECK(t.copy.is_cuda() && t.copy.scalar_type() == at::kBFloat16 &&
                    t.copy.is_contiguous() && t.copy.numel() == t.parameter.numel(),
                "AdamW in one launch: a copy of ", t.copy.sizes(), " ", t.copy.toString(),
                " given, contiguous bfloat16 of ", t.parameter.sizes(), " on a GPU expected");
  return static_cast<kernels::BFloat16*>(t.copy.mutable_data_ptr());
}

// Waits for the copy: the vector may go away.
template <class E>
void upload(const std::vector<E>& host, const at::Tensor& device) {
  device.copy_(at::from_blob(const_cast<E*>(host.data()),
                             {static_cast<int64_t>(host.size() * sizeof(E))}, at::kByte));
}

}  // namespace

struct AdamWList::State {
  std::vector<AdamWTensor> tensors;
  std::vector<kc::OptimizerTensor> entries;
  at::Tensor entry_bytes, chunk_bytes, step_bytes, workspace;
  kc::OptimizerList list;

  kc::Stream stream() const { return cuda::stream_of(entry_bytes); }
};

AdamWList::AdamWList(std::vector<AdamWTensor> tensors) : state_(std::make_unique<State>()) {
  TEMPERA_CHECK(!tensors.empty(), "an optimizer without parameters");
  State& s = *state_;
  s.tensors = std::move(tensors);
  const auto floats = [](const at::Tensor& t) {
    TEMPERA_CHECK(t.is_cuda() && t.scalar_type() == at::kFloat && t.is_contiguous(),
                  "AdamW in one launch: ", t.toString(), " given, contiguous float32 of a GPU ",
                  "expected");
    return t.mutable_data_ptr<float>();
  };
  for (const AdamWTensor& t : s.tensors)
    s.entries.push_back({.count = t.parameter.numel(),
                         .master = floats(t.parameter.detach()),
                         .value = copy_of(t),
                         .mean = floats(t.mean),
                         .square = floats(t.square),
                         .decay = static_cast<float>(t.decay),
                         .rate_factor = static_cast<float>(t.rate_factor)});
  const std::vector<kc::OptimizerChunk> chunks = kc::optimizer_chunks(s.entries);
  const auto device = s.tensors[0].parameter.device();
  s.entry_bytes = bytes_on(device, s.entries.size() * sizeof(kc::OptimizerTensor));
  s.chunk_bytes = bytes_on(device, chunks.size() * sizeof(kc::OptimizerChunk));
  s.step_bytes = bytes_on(device, sizeof(kc::AdamWStep));
  upload(chunks, s.chunk_bytes);
  s.list = {reinterpret_cast<const kc::OptimizerTensor*>(s.entry_bytes.const_data_ptr()),
            reinterpret_cast<const kc::OptimizerChunk*>(s.chunk_bytes.const_data_ptr()),
            static_cast<int64_t>(chunks.size())};
  s.workspace = bytes_on(device, kc::gradient_norm_workspace(s.list.chunk_count));
}

AdamWList::~AdamWList() = default;

void AdamWList::set_gradients() {
  State& s = *state_;
  for (size_t i = 0; i < s.tensors.size(); ++i) {
    const at::Tensor gradient = s.tensors[i].parameter.grad();
    TEMPERA_CHECK(
        gradient.defined() && gradient.is_contiguous() &&
            (gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kBFloat16),
        "AdamW in one launch: a gradient is missing, not contiguous or of another type");
    kc::OptimizerTensor& entry = s.entries[i];
    entry.gradient = nullptr;
    entry.gradient_bf16 = nullptr;
    if (gradient.scalar_type() == at::kFloat)
      entry.gradient = gradient.const_data_ptr<float>();
    else
      entry.gradient_bf16 = static_cast<const kernels::BFloat16*>(gradient.const_data_ptr());
  }
  upload(s.entries, s.entry_bytes);
}

void AdamWList::set_step(const AdamWStep& step) {
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto number = static_cast<double>(step.step);
  const kc::AdamWStep values{.rate = f(step.rate),
                             .beta1 = f(step.beta1),
                             .beta2 = f(step.beta2),
                             .epsilon = f(step.epsilon),
                             .correction1 = f(1 - std::pow(step.beta1, number)),
                             .correction2 = f(1 - std::pow(step.beta2, number))};
  // Memory of its own for each step: torch gives it to nobody else before the GPU has read it, even
  // where the host is steps ahead.
  const at::Tensor host = at::empty({static_cast<int64_t>(sizeof(values))},
                                    at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  std::memcpy(host.mutable_data_ptr(), &values, sizeof(values));
  state_->step_bytes.copy_(host, /*non_blocking=*/true);
}

void AdamWList::norm(double clip, const at::Tensor& result) {
  kc::gradient_norm(state_->list, static_cast<float>(clip), result.mutable_data_ptr<float>(),
                    state_->workspace.mutable_data_ptr(), state_->stream());
}

void AdamWList::step(const at::Tensor& result) {
  kc::adamw(state_->list,
            reinterpret_cast<const kc::AdamWStep*>(state_->step_bytes.const_data_ptr()),
            result.const_data_ptr<float>() + 1, state_->stream());
}

}  // namespace tempera::ops
