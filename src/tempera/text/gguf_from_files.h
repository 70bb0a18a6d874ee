#pragma once

#include <cstdint>
#include <filesystem>

#include "tempera/text/gguf_tokenizer.h"

namespace tempera::text {

// The tokenizer of a folder in the terms of GGUF, with as many tokens as the model has rows: ids
// that the tokenizer does not have become unused tokens. Reads tokenizer.json (byte-level BPE whose
// way to split words has a name, or BPE with scores as sentencepiece has it) or tokenizer.model.
// Throws Error, with the reason, for what the format has no words for.
GgufTokenizer gguf_tokenizer_of(const std::filesystem::path& folder, int64_t rows);

}  // namespace tempera::text
