#include "tempera/text/stream.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

constexpr size_t kMostSilent = 16;  // that give no text, one after the other

// Whether more bytes can make it a character.
bool starts_character(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  return lead >= 0xC2 && lead <= 0xF4 && bytes.size() < size &&
         std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; });
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, SpecialText specials)
    : tokenizer_(tokenizer), specials_(specials) {}

std::string StreamDecoder::push(int32_t id) {
  // A model may have more rows than its tokenizer has names.
  if (id < 0 || id >= tokenizer_.vocabulary()) return {};
  if (specials_ == SpecialText::kSkip && tokenizer_.is_special(id)) return {};
  // A decoder treats the first piece in its own way (no blank before it), so the new id is read
  // behind the one before, and the text of that one is taken off again.
  std::string before, all;
  tokenizer_.decode(ids_, before, specials_);
  ids_.push_back(id);
  tokenizer_.decode(ids_, all, specials_);
  waiting_ += all.substr(std::min(before.size(), all.size()));
  if (all.size() > before.size() || ids_.size() > kMostSilent) ids_.assign(1, id);
  return take(false);
}

std::string StreamDecoder::finish() { return take(true); }

std::string StreamDecoder::take(bool last) {
  std::string text;
  size_t at = 0;
  while (at < waiting_.size()) {
    const std::string_view left = std::string_view(waiting_).substr(at);
    const size_t size = utf8_size(left);
    if (size == 0 && !last && starts_character(left)) break;
    text += size > 0 ? left.substr(0, size) : std::string_view("\xEF\xBF\xBD");
    at += size > 0 ? size : 1;
  }
  waiting_.erase(0, at);
  return text;
}

}  // namespace tempera::text
