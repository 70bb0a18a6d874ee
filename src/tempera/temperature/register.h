#pragma once

#include "tempera/temperature/registry.h"

namespace tempera {

// Adds a method of another library to the registry; not while another thread uses it. Throws where
// the entry is incomplete, the name is taken, or there are too many.
void register_method(MethodEntry entry);

}  // namespace tempera
