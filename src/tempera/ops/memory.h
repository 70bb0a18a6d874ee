#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace tempera::ops {

// Gives the memory of a tensor back, and takes new memory for it. Its views see what is there, also
// those that a pass keeps for its way back.
void release_memory(const at::Tensor& tensor);
void take_memory(const at::Tensor& tensor);
// The same for what lies in a storage, whoever sees it.
void take_memory(c10::StorageImpl& storage, size_t bytes);

}  // namespace tempera::ops
