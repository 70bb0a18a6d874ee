#include "tempera/text/wordpiece.h"

#include <algorithm>
#include <utility>

namespace tempera::text {

WordPiece::WordPiece(const Vocabulary& vocabulary, WordPieceOptions options,
                     const std::function<bool(int32_t)>& never)
    : options_(std::move(options)) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (never(id)) continue;
    const std::string_view piece = vocabulary.piece(id);
    first_.add(piece, id);
    if (piece.starts_with(options_.prefix)) next_.add(piece.substr(options_.prefix.size()), id);
  }
}

void WordPiece::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  cached(piece, scratch, ids,
         [&](std::string_view word, std::vector<int32_t>& result) { encode_word(word, result); });
}

void WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    ids.push_back(options_.unknown);
  };
  const auto characters = std::count_if(word.begin(), word.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  if (characters > options_.longest_word) {
    unknown();
    return;
  }
  for (size_t at = 0; at < word.size();) {
    const Trie::Match match = (at == 0 ? first_ : next_).longest(word.substr(at));
    if (match.size == 0) {
      unknown();
      return;
    }
    ids.push_back(match.value);
    at += match.size;
  }
}

}  // namespace tempera::text
