#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tempera::io {

// Parses JSON that may be hostile: an object that names a key twice and nesting deeper than `depth`
// are errors, as is everything that RFC 8259 forbids. `where` names the source in messages.
nlohmann::json parse_json(std::string_view text, std::string_view where, int depth = 64);
// The same, with the fields of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where,
                                          int depth = 64);

}  // namespace tempera::io
