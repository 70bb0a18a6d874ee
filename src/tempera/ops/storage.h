#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tempera/kernels/attention.h"

// What the fused passes share, whatever the device.
namespace tempera::ops {

// Calls body with a null pointer of the storage type, float or BFloat16.
template <class Body>
void for_storage(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kFloat)
    body(static_cast<float*>(nullptr));
  else
    body(static_cast<kernels::BFloat16*>(nullptr));
}

// Null for an undefined tensor.
template <class T>
T* memory(const at::Tensor& x) {
  return static_cast<T*>(x.defined() ? x.mutable_data_ptr() : nullptr);
}

// An undefined tensor cannot be the argument of a differentiable function, an absent one can.
using Maybe = std::optional<at::Tensor>;
inline Maybe maybe(const at::Tensor& x) { return x.defined() ? Maybe(x) : std::nullopt; }

inline at::Tensor as_float(const at::Tensor& x) {
  return x.defined() ? x.to(at::kFloat).contiguous() : x;
}

}  // namespace tempera::ops
