#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tempera/models/load.h"
#include "tempera/text/chat.h"
#include "tempera/text/tokenizer.h"

namespace tempera::models {

// What turns text into the model's ids: from its folder or file; null where there is none, as with
// a model of a built-in task. Throws where there is one that cannot be read.
std::shared_ptr<const text::Tokenizer> tokenizer_of(const LoadedModel& loaded);

// Whether a folder has one of the files that tokenizers are read from.
bool has_tokenizer_files(const std::filesystem::path& folder);

// A tokenizer as something to keep with a model: its name and the files that it was read from, with
// those that say how it writes conversations. The byte tokenizer needs no file.
struct StoredTokenizer {
  std::string name;
  std::map<std::string, std::string> files = {};
};

// What a tokenizer and its way to write conversations may need.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tokenizer.model",
                                                  "tokenizer_config.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "vocab.txt",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "chat_template.jinja",
                                                  "generation_config.json"};

// The contents of those that the folder has, by name.
std::map<std::string, std::string> read_tokenizer_files(const std::filesystem::path& folder);

// That of a tokenizer's file or folder, or of a .gguf file: a model's folder with these files has
// the same tokenizer, whatever the name of the file was. Throws Error for a .gguf file whose
// tokenizer has no such files.
StoredTokenizer stored_tokenizer(const std::filesystem::path& given,
                                 const text::Tokenizer& tokenizer);
// That of a model: its files as they are, or made from what a GGUF file says.
StoredTokenizer stored_tokenizer(const LoadedModel& loaded);

// The tokens that end an answer, as the model's files state them; there may be several.
std::vector<int64_t> end_tokens_of(const LoadedModel& loaded);

// How the model writes conversations; unset where it does not say.
std::optional<text::ChatTemplate> chat_template_of(const LoadedModel& loaded);

}  // namespace tempera::models
