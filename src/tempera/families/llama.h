#pragma once

#include "tempera/families/family.h"

namespace tempera::families {

// Llama, Mistral, Qwen2, Qwen3, Granite, Gemma-2, OLMo-2.
std::vector<Family> llama_families();

}  // namespace tempera::families
