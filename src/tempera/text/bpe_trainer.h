#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tempera/base/parallel.h"

namespace tempera::text {

struct BpeTrainerOptions {
  int64_t vocabulary = 0;                        // special tokens and the 256 bytes among them
  int64_t min_frequency = 2;                     // a pair that is rarer is not joined
  std::vector<std::string> special_tokens = {};  // the first ids
};

// A byte-level vocabulary and the pairs that are joined, in this order.
struct TrainedBpe {
  std::vector<std::string> pieces;  // by id; bytes are written as byte_level.h has it
  std::vector<std::pair<int32_t, int32_t>> merges;
  size_t special_tokens = 0;

  // A tokenizer.json that the package tokenizers reads as well: GPT-2's pattern, no prefix space.
  std::string tokenizer_json() const;
};

// Learns a byte-level BPE: the merges are those of the package tokenizers on the same texts with
// the same options, equal counts included.
class BpeTrainer {
 public:
  // Counts the words of a document; bytes that are no UTF-8 count as U+FFFD.
  void add(std::string_view document);

  // report(pieces so far) is called now and then, and may throw. Fewer pieces than asked for come
  // out where no pair is frequent enough.
  TrainedBpe train(const BpeTrainerOptions& options,
                   FunctionRef<void(int64_t pieces)> report) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> words_;
};

}  // namespace tempera::text
