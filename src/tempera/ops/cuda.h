#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tempera/ops/backend.h"
#include "tempera/ops/prologue.h"

// The operators on a GPU, over the kernels of kernels/cuda. A program that is built without those
// has the functions too: has_kernels() is false there, and the rest throws.
namespace tempera::ops::cuda {

// Whether this program has kernels that run on the device: built in, and for its architecture. Says
// once on stderr where they were built in for others alone.
bool has_kernels(const at::Device& device);

// Whether our attention takes these on the GPU of q: their type, and the shared memory that rows of
// this size need. Says once on stderr where that memory is too small.
bool takes(const AttentionArgs& args);
bool takes(const DecodeArgs& args);

// Whether the kernels take rows of this tensor: on a GPU, of float32 or bfloat16, `size` columns
// being a multiple of 8.
bool takes(const at::Tensor& x, int64_t size);

// Whether cuDNN has the fastest plain attention for the GPU of this tensor: Hopper and later.
bool prefers_cudnn(const at::Tensor& x);

// Our own attention, for everything that libtorch's cannot do. Below autograd.
AttentionResult attention(const AttentionArgs& args);
std::vector<at::Tensor> attention_backward(const BackwardArgs& args);
AttentionResult decode(const DecodeArgs& args);

// As in fused.h and prologue.h, differentiable.
at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids, at::ScalarType type);
std::vector<at::Tensor> prologue(const PrologueArgs& args);

}  // namespace tempera::ops::cuda
