#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/io/safetensors.h"

namespace tempera::io {

inline constexpr uint64_t kMostHeaderBytes = 100'000'000;
inline constexpr size_t kMostDimensions = 64;

// What a header says about a tensor; the offsets are not yet checked against the file.
struct HeaderTensor {
  std::string name = {};
  DType dtype = DType::kF32;
  std::vector<int64_t> shape = {};
  uint64_t begin = 0, end = 0;  // relative to the data that follows the header
};

struct Header {
  std::vector<HeaderTensor> tensors;
  Metadata metadata;
};

// Reads the JSON of a header; refuses all that the format does not name, so that memory stays in
// proportion to the text.
Header parse_header(std::string_view json, std::string_view where);

// Bytes of a tensor; throws when the product does not fit.
uint64_t tensor_bytes(std::string_view where, std::string_view name, DType dtype,
                      const std::vector<int64_t>& shape);

}  // namespace tempera::io
