#pragma once

#include <string>

namespace tempera {

// A name as a shell takes it.
std::string quoted(const std::string& name);

}  // namespace tempera
