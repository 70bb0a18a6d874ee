#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tempera/text/model.h"
#include "tempera/text/trie.h"
#include "tempera/text/vocabulary.h"

namespace tempera::text {

struct UnigramOptions {
  std::optional<int32_t> unknown = {};
  bool byte_fallback = false;
  double unknown_score = 0;  // of a character that is no piece
  // Sums in single precision, as sentencepiece has them: they decide between near ties.
  bool single_precision = false;
};

// The pieces whose scores have the greatest sum; of equal ways, the one found first.
class Unigram final : public Model {
 public:
  // One score an id; pieces for which never(id) holds are no result of text.
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options,
          const std::function<bool(int32_t)>& never);
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void forward(std::string_view word, std::vector<Scratch::Node>& nodes) const;

  Trie trie_;
  std::vector<double> scores_;
  UnigramOptions options_;
  ByteIds bytes_{};
};

}  // namespace tempera::text
