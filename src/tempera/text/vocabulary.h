#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tempera::text {

// Lets a map of strings be searched with views.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using IdMap = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

// The pieces of a tokenizer by id and by name.
class Vocabulary {
 public:
  // Ids may leave holes. Throws for an id below 0 or beyond 2^22, more than any model has.
  void add(std::string_view piece, int64_t id);

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }  // ids are below it
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view piece) const;
  // The id; throws, naming what wants it, if there is none.
  int32_t at(std::string_view piece, std::string_view wanted_by) const;

 private:
  std::vector<std::string> pieces_;
  IdMap ids_;
};

// Ids of the pieces <0x00> to <0xFF>; -1 where there is none.
using ByteIds = std::array<int32_t, 256>;
ByteIds byte_ids(const Vocabulary& vocabulary);
// The byte that a piece such as <0x0A> stands for.
std::optional<unsigned char> byte_of_piece(std::string_view piece);

// Appends the ids of the bytes, or nothing and false if one has none.
bool append_bytes(std::string_view bytes, const ByteIds& table, std::vector<int32_t>& ids);

}  // namespace tempera::text
