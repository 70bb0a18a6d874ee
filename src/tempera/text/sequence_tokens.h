#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tempera/text/tokenizer.h"

namespace tempera::text {

// The ids that encoders and encoder-decoders need beside a text's. Those that the tokenizer has not
// get the ids behind its vocabulary, always the same ones, so that the tasks of one tokenizer
// agree.
struct SequenceTokens {
  int64_t vocabulary = 0;  // with the ids that were added, but for sentinels
  int64_t pad = 0;
  int64_t start = 0;  // which a decoder reads first; the padding, as in T5
  int64_t end = 0;
  int64_t mask = 0;
  std::vector<int64_t> sentinels;   // which stand for spans that were taken out
  int64_t vocabulary_of_spans = 0;  // with sentinels
  std::vector<bool> special;        // by id: no part of a text

  explicit SequenceTokens(const Tokenizer& tokenizer);
};

// A text as encoders read it and decoders write it: with what the tokenizer puts around it,
// and the end behind.
std::vector<int64_t> encode_sequence(const Tokenizer& tokenizer, const SequenceTokens& ids,
                                     std::string_view text);
// At most `length` tokens, of which the last stays: it tells where the text ends.
void cut_sequence(std::vector<int64_t>& tokens, int64_t length);

}  // namespace tempera::text
