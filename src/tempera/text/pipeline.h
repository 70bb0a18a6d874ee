#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tempera/text/added_tokens.h"
#include "tempera/text/decoder.h"
#include "tempera/text/model.h"
#include "tempera/text/normalizer.h"
#include "tempera/text/pre_tokenizer.h"
#include "tempera/text/tokenizer.h"
#include "tempera/text/vocabulary.h"

namespace tempera::text {

// What a tokenizer from files is made of, whatever the files. Text goes through added tokens,
// normalizers, pre-tokenizers and the model, ids through decoders.
struct TokenizerParts {
  std::string kind;  // of the model, for the name: bpe, unigram, wordpiece
  Vocabulary vocabulary;
  std::vector<AddedToken> added;  // in the vocabulary too
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<const Model> model;
  Decoders decoders;
  std::vector<int32_t> before, after;  // special tokens around a text
  SpecialTokens special;

  // Adds the token to the vocabulary, and to those that are looked for.
  void add_token(AddedToken token);
  // Whether the model must never give the id: special tokens, and those it does not have.
  std::function<bool(int32_t)> never() const;
  // Fills what is not set of `special` with pieces of the usual names.
  void guess_special();
};

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts);

}  // namespace tempera::text
