#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::text {

// The ids of words seen before. Forgets all of them when it is full.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer words seldom come again

  static uint64_t hash(std::string_view word);
  // Appends the ids of the word if it is known.
  bool find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const;
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids);

 private:
  struct Entry {
    uint64_t hash = 0;
    uint32_t word = 0;  // place in words_
    uint32_t ids = 0;   // place in ids_; the id itself where there is just one
    uint16_t size = 0;  // bytes of the word; 0: a free entry
    uint16_t count = 0;
  };

  void grow();

  std::vector<Entry> entries_;
  size_t used_ = 0;
  std::string words_;
  std::vector<int32_t> ids_;
};

}  // namespace tempera::text
