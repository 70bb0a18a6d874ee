#pragma once

#include "tempera/families/family.h"

namespace tempera::families {

// GPT-2, GPT-NeoX (Pythia).
std::vector<Family> gpt_families();

}  // namespace tempera::families
