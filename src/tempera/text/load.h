#pragma once

#include <filesystem>
#include <memory>

#include "tempera/text/tokenizer.h"

namespace tempera::text {

// The tokenizer of a model: a folder, a .gguf file, or one of the files tokenizer.json,
// tokenizer.model (sentencepiece), vocab.json (with merges.txt beside it), vocab.txt (BERT), also
// under other names with these endings. In a folder the first of these is taken. Names of special
// tokens and settings come from tokenizer_config.json, where there is one beside it.
// Throws Error with the file and what is wrong with it, or what was looked for.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// Which file of a folder that is. Throws where there is none.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

}  // namespace tempera::text
