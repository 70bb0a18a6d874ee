#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tempera/text/tokenizer.h"

namespace tempera::text {

// The tokenizer of a model: a folder, a .gguf file, or one of the files tokenizer.json,
// tokenizer.model (sentencepiece), vocab.json (with merges.txt beside it), vocab.txt (BERT), also
// under other names with these endings. In a folder the first of these is taken. Names of special
// tokens and settings come from tokenizer_config.json, where there is one beside it.
// Throws Error with the file and what is wrong with it, or what was looked for.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// The files that load_tokenizer reads of a tokenizer that is a file (but no .gguf), without the
// settings beside it, each by the name under which a model's folder has it: a folder with these
// gives the same tokenizer.
std::map<std::string, std::filesystem::path> tokenizer_sources(const std::filesystem::path& file);

// Which file of a folder that is. Throws where there is none.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

}  // namespace tempera::text
