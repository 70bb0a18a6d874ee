#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/normalizer.h"

namespace tempera::text {

// sentencepiece's compiled rules of normalisation: strings and what they become.
class CharsMap {
 public:
  // Throws Error for bytes that are no such rules. Nothing in them is trusted.
  explicit CharsMap(std::string_view blob);

  struct Rule {
    size_t size = 0;  // of the string that is replaced; 0: no rule
    std::string_view result;
  };
  Rule shortest(std::string_view text) const { return find(text, false); }
  Rule longest(std::string_view text) const { return find(text, true); }
  // Whether an ASCII character by itself has no rule.
  bool is_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x80 && plain_[byte];
  }

 private:
  Rule find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;  // a double-array trie
  std::string results_;          // each ends with a zero byte
  std::array<bool, 128> plain_{};
};

// The rules as tokenizer.json's "Precompiled" applies them: by grapheme, and the first rule that
// fits the start of one replaces it whole.
std::unique_ptr<Normalizer> precompiled_normalizer(CharsMap rules);

}  // namespace tempera::text
