#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/model.h"
#include "tempera/text/trie.h"
#include "tempera/text/vocabulary.h"

namespace tempera::text {

struct WordPieceOptions {
  int32_t unknown = 0;
  std::string prefix = "##";   // of pieces that continue a word
  int64_t longest_word = 100;  // characters; a longer one is unknown
};

// The longest piece at each place; a word that cannot be spelled is unknown as a whole.
class WordPiece final : public Model {
 public:
  WordPiece(const Vocabulary& vocabulary, WordPieceOptions options,
            const std::function<bool(int32_t)>& never);
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  WordPieceOptions options_;
  Trie first_, next_;
};

}  // namespace tempera::text
