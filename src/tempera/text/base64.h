#pragma once

#include <string>
#include <string_view>

namespace tempera::text {

// Throws Error, with `where` in front, for a text that is not base64.
std::string decode_base64(std::string_view text, std::string_view where);

}  // namespace tempera::text
