#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/bpe.h"
#include "tempera/text/pipeline.h"

namespace tempera::text {

// What sentencepiece keeps in a tokenizer.model, and GGUF in its metadata.
struct SentencePieceModel {
  enum class Algorithm { kUnigram, kBpe };
  // The numbers that the files have.
  enum class Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  Algorithm algorithm = Algorithm::kUnigram;
  std::vector<Piece> pieces;
  bool byte_fallback = false;
  std::string charsmap;  // empty: no rules
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  int64_t begin_id = 1, end_id = 2, pad_id = -1;  // -1: none
  bool add_begin = false, add_end = false;        // around a text, with special tokens
};

// The bytes of a tokenizer.model, which may be hostile; `where` names them in messages.
SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& where);

// Every way to join two pieces to a third, ranked by the score of the result; in no order.
std::vector<BpeMerge> sentencepiece_merges(const SentencePieceModel& model);

TokenizerParts sentencepiece_parts(const SentencePieceModel& model);

}  // namespace tempera::text
