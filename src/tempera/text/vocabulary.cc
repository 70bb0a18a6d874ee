#include "tempera/text/vocabulary.h"

#include "tempera/base/error.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 22;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Vocabulary::add(std::string_view piece, int64_t id) {
  TEMPERA_CHECK(id >= 0 && id < kMostIds, "the piece '", piece, "' has the id ", id,
                "; ids from 0 to ", kMostIds - 1, " are possible");
  TEMPERA_CHECK(is_valid_utf8(piece), "the piece with the id ", id, " is not UTF-8");
  if (id >= size()) pieces_.resize(static_cast<size_t>(id) + 1);
  pieces_[static_cast<size_t>(id)] = piece;
  ids_[std::string(piece)] = static_cast<int32_t>(id);
}

std::optional<int32_t> Vocabulary::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end()) return {};
  return found->second;
}

int32_t Vocabulary::at(std::string_view piece, std::string_view wanted_by) const {
  const auto id = find(piece);
  TEMPERA_CHECK(id, wanted_by, " names '", piece, "', which is not in the vocabulary of ",
                ids_.size(), " pieces; the tokenizer's files do not belong together");
  return *id;
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return {};
  const int high = hex_value(piece[3]), low = hex_value(piece[4]);
  if (high < 0 || low < 0) return {};
  return static_cast<unsigned char>(16 * high + low);
}

ByteIds byte_ids(const Vocabulary& vocabulary) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  ByteIds ids;
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string piece{'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    ids[byte] = vocabulary.find(piece).value_or(-1);
  }
  return ids;
}

bool append_bytes(std::string_view bytes, const ByteIds& table, std::vector<int32_t>& ids) {
  const size_t before = ids.size();
  for (const char c : bytes) {
    const int32_t id = table[static_cast<unsigned char>(c)];
    if (id < 0) {
      ids.resize(before);
      return false;
    }
    ids.push_back(id);
  }
  return true;
}

}  // namespace tempera::text
