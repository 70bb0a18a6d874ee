#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/pattern.h"
#include "tempera/text/trie.h"

namespace tempera::text {

// A token that is found in the text before the model sees it.
struct AddedToken {
  std::string content = {};
  int32_t id = 0;
  bool special = false;      // found only where the caller asks for special tokens
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool single_word = false;  // not inside of a word
  bool normalized = false;   // looked for in the normalised text, as `pattern`
  std::string pattern = {};
  bool outside_model = false;  // the model does not have it as a piece
};

struct Segment {
  Range range;
  int32_t id = -1;  // of the added token; -1: text
};

// Finds added tokens, the leftmost first, and the longest of those.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token);
  // Cuts the text into tokens and what is between them.
  void find(std::string_view text, bool specials, std::vector<Segment>& segments) const;

 private:
  std::vector<AddedToken> tokens_;
  Trie trie_;
};

}  // namespace tempera::text
