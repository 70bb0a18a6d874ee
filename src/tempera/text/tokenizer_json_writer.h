#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/text/added_tokens.h"

namespace tempera::text {

// What a tokenizer.json of byte-pair encoding says. Steps are the objects that the file has; null:
// none.
struct BpeJson {
  std::vector<std::string> pieces = {};  // by id; an empty one is a hole
  std::vector<std::string> merges = {};  // two pieces with a blank between them
  std::vector<AddedToken> added = {};    // among the pieces
  std::string unknown = {};              // empty: none
  bool fuse_unknown = false, byte_fallback = false, whole_words = false;
  nlohmann::json normalizer = nullptr;
  nlohmann::json pre_tokenizer = nullptr;
  nlohmann::json post_processor = nullptr;
  nlohmann::json decoder = nullptr;
};

// The text of the file, as the package tokenizers reads it too.
std::string tokenizer_json_text(const BpeJson& parts);

// GPT-2's way to make words of bytes, or bytes of pieces.
nlohmann::json byte_level_json(bool use_regex, bool add_prefix_space = false);

}  // namespace tempera::text
