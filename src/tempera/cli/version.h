#pragma once

#include <string>

namespace tempera::cli {

// The program's version, and what decides how it computes: torch, GPU, instruction set. One JSON
// document.
std::string version_json();

}  // namespace tempera::cli
