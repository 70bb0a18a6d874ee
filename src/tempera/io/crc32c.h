#pragma once

#include <cstdint>
#include <string_view>

namespace tempera::io {

// The checksum by Castagnoli's polynomial (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

}  // namespace tempera::io
