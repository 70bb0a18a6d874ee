#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tempera::io {

// Parses JSON that may be hostile: an object that names a key twice and nesting deeper than `depth`
// are errors, as is everything that RFC 8259 forbids. `where` names the source in messages.
nlohmann::json parse_json(std::string_view text, std::string_view where, int depth = 64);
// The same, with the fields of objects in the order of the text. An object takes time that grows
// with the square of its keys: where strangers send the text, `most_keys` bounds them.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where,
                                          int depth = 64, size_t most_keys = SIZE_MAX);

}  // namespace tempera::io
