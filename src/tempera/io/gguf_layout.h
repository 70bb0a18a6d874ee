#pragma once

#include <cstdint>
#include <string_view>

#include "tempera/io/gguf_metadata.h"

namespace tempera::io {

// What reader and writer agree upon.
inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint64_t kDefaultAlignment = 32;
inline constexpr uint64_t kMostEntries = 1'000'000;  // keys, or tensors
inline constexpr uint64_t kMostNameBytes = 65'535;   // of a key, or of a tensor's name
inline constexpr uint64_t kMostValueBytes = uint64_t{1} << 30;
inline constexpr size_t kMostGgufDimensions = 4;

// To what multiple the tensors' bytes begin; throws when the metadata's value is of no use.
uint64_t gguf_alignment(const GgufMetadata& metadata, std::string_view where);

// The next multiple of a power of two; throws when it does not fit.
uint64_t align_up(uint64_t value, uint64_t alignment, std::string_view where);

}  // namespace tempera::io
