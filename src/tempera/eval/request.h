#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tempera/text/tokenizer.h"

namespace tempera::eval {

// How likely is this continuation after this context? Neither may be empty.
struct Request {
  std::vector<int32_t> context, continuation;
  // Neighbours in a list with the same number begin alike, as the choices of a question do: what
  // they share goes through the model once.
  size_t group = 0;
};

struct Likelihood {
  double log_probability = 0;  // of the whole continuation
  bool greedy = false;         // each of its tokens was the likeliest: greedy decoding writes it
};

// A context and its continuation as the tokens of the whole text, cut where those of the context
// alone end. Blanks at the context's end go over to the continuation, because tokenizers join them
// with the word behind. An empty context is the tokenizer's begin-of-text, or its end-of-text.
Request encode_pair(const text::Tokenizer& tokenizer, std::string_view context,
                    std::string_view continuation, size_t group = 0);

}  // namespace tempera::eval
