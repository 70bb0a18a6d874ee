#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tempera {

std::string encode_base64(std::span<const uint8_t> bytes);

}  // namespace tempera
