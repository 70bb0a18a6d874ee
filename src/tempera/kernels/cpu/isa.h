#pragma once

#include <string>
#include <vector>

namespace tempera::kernels::cpu {

// The instruction sets that the kernels are compiled for: "baseline", "avx2", "avx512".
std::vector<std::string> supported_isas();

// The one in use: the best that the machine has, or the one that the environment variable
// TEMPERA_ISA names. Throws where that names none, or one that the machine does not have.
std::string selected_isa();

// Fixes the choice for the dispatch tables. Every public kernel function calls it first.
void select_isa();

}  // namespace tempera::kernels::cpu
