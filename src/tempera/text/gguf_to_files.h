#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tempera/text/gguf_tokenizer.h"

namespace tempera::text {

// What a folder of transformers has for a tokenizer.
struct TokenizerFiles {
  std::string tokenizer_json;
  nlohmann::json config;  // tokenizer_config.json: the class and the special tokens
};

// Ids are the same by the files. Throws Error, with the reason, for a tokenizer whose ids a
// tokenizer.json would not give: all but byte-level BPE and the BPE of sentencepiece, and of the
// latter those with rules for characters or with symbols of the user behind a prefix.
TokenizerFiles tokenizer_files(const GgufTokenizer& description);

// The normalizers that drop blanks at the ends of a text and beside other blanks.
nlohmann::json squeeze_json();

// The special tokens that the tokenizer puts around a text.
struct AroundText {
  std::vector<int32_t> before, after;
};
AroundText around_text(const Tokenizer& tokenizer);

}  // namespace tempera::text
