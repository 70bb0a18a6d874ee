#pragma once

#include <string>
#include <string_view>

#include "tempera/http/message.h"

namespace tempera::http {

// The text with its %XX decoded, and '+' as a blank in a form. Throws Refusal unless the result is
// UTF-8 without control characters.
std::string percent_decode(std::string_view text, bool form);

// Sets path and query from the target of a request line: "/path?a=b", or the same behind
// "http://host". Throws Refusal for any other.
void parse_target(std::string_view target, Request& request);

}  // namespace tempera::http
