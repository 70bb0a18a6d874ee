#include "tempera/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tempera/base/error.h"

namespace tempera::text {
namespace {

constexpr std::array<std::string_view, 3> kByteSpecials{"<|endoftext|>", "<|pad|>", "<|mask|>"};
constexpr std::string_view kHexDigits = "0123456789ABCDEF";

int32_t byte_id(char c) { return static_cast<int32_t>(static_cast<unsigned char>(c)); }

// The special token that the text starts with.
std::optional<int32_t> byte_special(std::string_view text) {
  if (text.empty() || text.front() != '<') return {};
  for (size_t i = 0; i < kByteSpecials.size(); ++i)
    if (text.starts_with(kByteSpecials[i])) return 256 + static_cast<int32_t>(i);
  return {};
}

}  // namespace

void Tokenizer::check_id(int32_t id) const {
  TEMPERA_CHECK(id >= 0 && id < vocabulary(), "token id ", id, "; the tokenizer '", name(),
                "' has 0 to ", vocabulary() - 1);
}

std::string ByteTokenizer::piece(int32_t id) const {
  check_id(id);
  const auto index = static_cast<size_t>(id);
  if (index >= 256) return std::string(kByteSpecials[index - 256]);
  return {'<', '0', 'x', kHexDigits[index / 16], kHexDigits[index % 16], '>'};
}

std::optional<int32_t> ByteTokenizer::find(std::string_view piece) const {
  if (const auto id = byte_special(piece); id && this->piece(*id) == piece) return id;
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return {};
  const size_t high = kHexDigits.find(piece[3]), low = kHexDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return {};
  return static_cast<int32_t>(16 * high + low);
}

void ByteTokenizer::encode_text(std::string_view text, EncodeOptions options,
                                std::vector<int32_t>& ids) const {
  if (!options.parse_special) {
    const size_t begin = ids.size();
    ids.resize(begin + text.size());
    std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
                   byte_id);
    return;
  }
  while (!text.empty()) {
    const auto special = byte_special(text);
    ids.push_back(special ? *special : byte_id(text.front()));
    text.remove_prefix(special ? kByteSpecials[static_cast<size_t>(*special - 256)].size() : 1);
  }
}

void ByteTokenizer::decode_ids(std::span<const int32_t> ids, SpecialText specials,
                               std::string& text) const {
  for (const int32_t id : ids) {
    check_id(id);
    if (id < 256) {
      text.push_back(static_cast<char>(id));
    } else if (specials == SpecialText::kShow) {
      text += piece(id);
    }
  }
}

}  // namespace tempera::text
