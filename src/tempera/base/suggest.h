#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tempera {

// The number of insertions, deletions, replacements and swaps of neighbours that turn one into the
// other.
size_t edit_distance(std::string_view a, std::string_view b);

// "; did you mean 'steps'?" for the known name that the given one was likely meant to be (the first
// of equally near ones); empty if none is near.
std::string did_you_mean(std::string_view given, std::span<const std::string> known);

// The first of the names, and how many more there are, for a message.
std::string listed(std::span<const std::string> names);

}  // namespace tempera
