#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tempera {

// From now on, SIGBUS of a mapped file ends the program with a message that names the file, and
// exit code 1.
void explain_lost_mappings();

// Which bytes are those of which file.
void note_mapping(std::span<const std::byte> bytes, const std::string& name);
void forget_mapping(std::span<const std::byte> bytes);

}  // namespace tempera
