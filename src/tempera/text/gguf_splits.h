#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tempera::text {

// What a name in tokenizer.ggml.pre stands for: the steps before BPE of a family of models, as a
// tokenizer.json states them.
struct GgufSplit {
  bool whole_words = false;  // a word that is a piece is not taken apart
  bool add_begin = false;    // where the file does not say
  nlohmann::json normalizer = nullptr;
  nlohmann::json pre_tokenizer = nullptr;
};

// Throws Error with the names that are known.
const GgufSplit& find_gguf_split(const std::string& name);

// The name of the steps of a tokenizer.json; nothing where no known one stands for them.
std::optional<std::string> gguf_split_name(const nlohmann::json& normalizer,
                                           const nlohmann::json& pre_tokenizer, bool whole_words);

}  // namespace tempera::text
