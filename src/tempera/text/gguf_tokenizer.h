#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tempera/io/gguf_metadata.h"
#include "tempera/text/sentencepiece.h"
#include "tempera/text/tokenizer.h"

namespace tempera::text {

// What GGUF says of a tokenizer (tokenizer.ggml.*).
struct GgufTokenizer {
  std::string model;  // gpt2, llama, bert or t5
  std::string pre;    // for gpt2, how words are split
  std::vector<std::string> tokens;
  std::vector<float> scores;        // for llama and t5
  std::vector<int32_t> types;       // as SentencePieceModel::Type numbers them; empty: all normal
  std::vector<std::string> merges;  // for gpt2
  std::string charsmap;             // for t5
  std::optional<int64_t> begin_id, end_id, unknown_id, separator_id, pad_id, class_id, mask_id;
  std::optional<bool> add_begin, add_end, add_space_prefix, remove_extra_whitespaces;
};

// Throws Error for a file without a tokenizer.
GgufTokenizer read_gguf_tokenizer(const io::GgufMetadata& metadata);

// Adds the keys of what the description has.
void write_gguf_tokenizer(const GgufTokenizer& description, io::GgufMetadata& metadata);

// What a tokenizer of llama or t5 is in the terms of sentencepiece.
SentencePieceModel sentencepiece_model(const GgufTokenizer& description);

// A model or a way to split words that is not known is refused by name, with the list of those
// that are. As far as the file tells, ids are those of the model's own tokenizer.json.
std::unique_ptr<Tokenizer> make_tokenizer(const GgufTokenizer& description);

}  // namespace tempera::text
