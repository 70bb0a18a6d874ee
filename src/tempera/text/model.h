#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/pre_tokenizer.h"
#include "tempera/text/word_cache.h"

namespace tempera::text {

// The memory that one encoding at a time works in, kept from text to text.
struct Scratch {
  struct Symbol {  // of a word that BPE joins
    int32_t id = 0;
    int32_t previous = -1, next = -1;
  };
  struct Candidate {     // two neighbours that can be joined
    uint64_t order = 0;  // rank, then place: the least is first
    int32_t result = 0;
  };
  struct Node {  // the best way to a place, for unigrams
    double score = 0;
    int64_t begin = -1;
    int32_t id = -1;
  };

  WordCache cache;
  Pieces pieces;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<Node> nodes;
};

// Turns pieces into ids.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of a piece, which is valid UTF-8 and not empty.
  virtual void encode(std::string_view piece, Scratch& scratch,
                      std::vector<int32_t>& ids) const = 0;

 protected:
  // Through the cache: compute(word, ids) appends the ids of a word that is not in it.
  template <class Compute>
  static void cached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids,
                     Compute&& compute) {
    if (word.size() > WordCache::kLongestWord) {
      compute(word, ids);
      return;
    }
    const uint64_t hash = WordCache::hash(word);
    if (scratch.cache.find(word, hash, ids)) return;
    const size_t before = ids.size();
    compute(word, ids);
    scratch.cache.insert(word, hash, std::span(ids).subspan(before));
  }
};

}  // namespace tempera::text
