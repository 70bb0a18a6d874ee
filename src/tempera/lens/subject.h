#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/lens/view.h"
#include "tempera/lens/weights.h"
#include "tempera/nn/model.h"
#include "tempera/text/tokenizer.h"

// One model that looked at one text.
namespace tempera::lens {

// Positions are kept in 16 bits where a page holds them.
inline constexpr int64_t kMostTokens = 65536;

struct Sequence {
  std::vector<int64_t> ids = {};
  std::vector<std::string> pieces = {};  // their texts, valid UTF-8; together the whole text
};

// A number that the text hides and then asks for, and what the model wrote for it.
struct Passkey {
  std::string wanted = {}, given = {};
  std::vector<Span> places = {};  // the tokens of the text that say it
  Span answer = {};               // the rows that write the answer, a token each
  bool right() const { return wanted == given; }
};

struct Subject {
  std::string name;
  std::string method;
  std::vector<Sequence> texts;  // the one that is read; of an encoder-decoder also the written one
  View view;
  std::vector<std::string> next_pieces;  // of view.next
  std::optional<Passkey> passkey = {};
  bool ended = false;  // the likeliest next token ends the text

  // Which of the texts are an attention's rows and keys.
  size_t row_text(const Attention& attention) const;
  size_t key_text(const Attention& attention) const;
};

// What each id adds to the text; special tokens by their names. A character of several ids is the
// last one's, and the others are empty.
std::vector<std::string> token_pieces(const text::Tokenizer& tokenizer,
                                      const std::vector<int64_t>& ids);

// The ids of a text that is looked at, the first `most` of them (0: all) with what the tokenizer
// puts around a text. Throws where there are none or too many; `origin` names the text.
Sequence read_sequence(const text::Tokenizer& tokenizer, std::string_view text,
                       std::string_view origin, int64_t most);

// The tokens in which `part` stands, in front of token `end`; wherever it does.
std::vector<Span> places_of(const Sequence& text, const std::string& part, int64_t end);

// The batch that a model gets of its texts.
nn::Batch batch_of(const std::vector<Sequence>& texts);

// Throws unless the two can be laid side by side: they read the same tokens.
void check_comparable(const Subject& one, const Subject& other);
// Whether every attention of one has its counterpart in the other, so that differences have a
// meaning.
bool same_heads(const Subject& one, const Subject& other);

}  // namespace tempera::lens
