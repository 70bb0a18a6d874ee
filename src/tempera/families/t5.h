#pragma once

#include "tempera/families/family.h"

namespace tempera::families {

std::vector<Family> t5_families();

}  // namespace tempera::families
