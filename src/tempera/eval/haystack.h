#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/data/random.h"
#include "tempera/eval/request.h"
#include "tempera/text/tokenizer.h"

// Long texts in which little sentences are hidden, to be asked for at the end. All lengths are in
// tokens and exact.
namespace tempera::eval {

// Text to hide things in, as tokens.
class Haystack {
 public:
  // Of text and jsonl files; none: of built-in sentences about everyday things.
  Haystack(std::span<const std::string> files, const text::Tokenizer& tokenizer);

  // Of a text, which begins again where it ends.
  static Haystack of_text(std::string_view text, const text::Tokenizer& tokenizer);

  struct Piece {
    std::vector<int32_t> tokens;
    std::vector<bool> ends;  // whether a sentence ends with this token
  };
  // Neighbouring tokens from a sentence's begin on that the stream chooses; a text that is too
  // short begins again.
  Piece take(data::RandomStream& random, int64_t tokens) const;

 private:
  Haystack() = default;
  void find_sentences(const text::Tokenizer& tokenizer);

  Piece text_;
  std::vector<size_t> begins_;  // of sentences
};

struct Needle {
  double depth = 0;  // 0: in front of all hay, 1: behind it; it goes to the nearest sentence's end
  std::string text;  // a sentence, with the blank in front of it
};

struct Question {
  std::string text;    // ends where the answer begins
  std::string answer;  // with the blank in front of it, which is given where it is its own token
};

struct HiddenText {
  std::string preamble;
  std::vector<Needle> needles;
  std::vector<Question> questions;  // of the same text, each asked on its own
};

// A request for each question, in one group. With the longest question and its answer the text has
// exactly `length` tokens. Throws where not even the needles and the question fit.
std::vector<Request> hide(const HiddenText& hidden, const Haystack& hay,
                          const text::Tokenizer& tokenizer, int64_t length,
                          data::RandomStream& random, size_t group);

// The tokens of a text that continues another, whose last character is a full stop.
std::vector<int32_t> encode_behind(const text::Tokenizer& tokenizer, std::string_view text);

// A number without a zero in front.
std::string random_number(data::RandomStream& random, int64_t digits);

// Sentences about everyday things, none of which holds a digit.
std::string filler_sentence(data::RandomStream& random);

}  // namespace tempera::eval
