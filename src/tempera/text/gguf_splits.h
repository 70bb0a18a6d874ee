#pragma once

#include <string>

#include "tempera/text/pipeline.h"

namespace tempera::text {

// What a name in tokenizer.ggml.pre stands for: the steps before BPE of a family of models.
struct GgufSplit {
  bool whole_words = false;  // a word that is a piece is not taken apart
  bool add_begin = false;    // where the file does not say
  // Appends normalizers and pre-tokenizers; tells whether words stay bytes.
  bool (*add_steps)(TokenizerParts& parts) = nullptr;
};

// Throws Error with the names that are known.
const GgufSplit& find_gguf_split(const std::string& name);

}  // namespace tempera::text
