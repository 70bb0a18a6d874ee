#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tempera::text {

// Byte-level vocabularies write a byte as a printable character: itself where it is one in Latin-1,
// else one of U+0100 and up.
void append_byte_level(std::string_view bytes, std::string& text);

// The bytes that the text writes; none if it has other characters.
std::optional<std::string> byte_level_bytes(std::string_view text);

}  // namespace tempera::text
