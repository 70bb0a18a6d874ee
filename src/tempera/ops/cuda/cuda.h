#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "tempera/ops/backend.h"
#include "tempera/ops/cuda/prologue.h"

// The way to the kernels of kernels/cuda. A program that is built without those has the functions
// too: there is no backend, and the rest throws.
namespace tempera::ops::cuda {

// Null where this program has no kernels that run on the device: not built in, or not for its
// architecture. Says once on stderr where they were built in for others alone.
const Backend* backend_of(const at::Device& device);
inline bool has_kernels(const at::Device& device) { return backend_of(device) != nullptr; }

// Every operand as (B, heads, T, size), lying as (B, T, heads, size). Differentiable.
std::vector<at::Tensor> prologue(const PrologueArgs& args);

}  // namespace tempera::ops::cuda
