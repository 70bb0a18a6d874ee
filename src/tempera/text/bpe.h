#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tempera/text/model.h"
#include "tempera/text/vocabulary.h"

namespace tempera::text {

struct BpeOptions {
  std::optional<int32_t> unknown = {};  // without one, characters that are in no piece are dropped
  bool fuse_unknown = false;            // neighbours give one unknown
  bool byte_fallback = false;           // pieces <0x00> to <0xFF> in place of the unknown
  bool whole_words = false;  // a word that is a piece is that piece, whatever the merges say
  bool bytes = false;        // words come as bytes; the pieces are in byte-level characters
  std::string prefix = {};   // of pieces that continue a word
  std::string suffix = {};   // of pieces that end one
};

struct BpeMerge {
  int32_t left = 0, right = 0, result = 0;
  uint32_t rank = 0;  // the least is joined first; of equal ones, the leftmost
};

// Byte-pair encoding: joins the neighbours with the least rank until none can be joined.
class Bpe final : public Model {
 public:
  // Pieces for which never(id) holds are no result of text.
  Bpe(const Vocabulary& vocabulary, std::vector<BpeMerge> merges, BpeOptions options,
      const std::function<bool(int32_t)>& never);
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const override;

  // A merge of the list that files have: two pieces with a blank between them. Of several blanks,
  // the first with pieces on both sides counts.
  static BpeMerge parse_merge(const Vocabulary& vocabulary, std::string_view text, size_t rank,
                              const std::string& prefix);
  static BpeMerge merge_of(const Vocabulary& vocabulary, std::string_view left,
                           std::string_view right, size_t rank, const std::string& prefix);

 private:
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  void add_letters(const Vocabulary& vocabulary, const std::function<bool(int32_t)>& never);
  void fill_slots(const std::vector<BpeMerge>& merges);
  void find_boundary(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges);

  const Slot* find(int32_t left, int32_t right) const;
  uint32_t rank(int32_t left, int32_t right) const {
    const Slot* slot = find(left, right);
    return slot == nullptr ? kNoRank : slot->rank;
  }
  int32_t letter(char32_t code, size_t form) const;
  void start(std::string_view word, std::vector<int32_t>& symbols) const;
  void start_bytes(std::string_view word, std::vector<int32_t>& symbols) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void join_short(Scratch& scratch) const;
  void join_long(Scratch& scratch) const;

  BpeOptions options_;
  std::vector<Slot> slots_;  // open addressing
  size_t mask_ = 0;
  // Letters by form: bit 0, with the prefix; bit 1, with the suffix.
  std::array<std::vector<int32_t>, 4> letters_;
  std::array<std::unordered_map<char32_t, int32_t>, 4> rare_letters_;
  ByteIds bytes_{};
  IdMap words_;
  bool cut_at_spaces_ = false;
};

}  // namespace tempera::text
