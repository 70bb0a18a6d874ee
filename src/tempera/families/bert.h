#pragma once

#include "tempera/families/family.h"

namespace tempera::families {

std::vector<Family> bert_families();

}  // namespace tempera::families
