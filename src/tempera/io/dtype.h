#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tempera::io {

// Types of stored elements, by rising alignment: files keep tensors in the reverse order, so that
// every tensor starts at a multiple of its element size.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

// Bytes an element.
size_t dtype_size(DType dtype);

// The name in a safetensors header: F32, BF16, F8_E4M3, ...
std::string_view dtype_name(DType dtype);

std::optional<DType> find_dtype(std::string_view name);

// All names, for messages.
std::string_view dtype_names();

}  // namespace tempera::io
