#include "tempera/text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::text {
namespace {

constexpr char32_t kPlane = 0x10000;  // what the tables cover; characters beyond are rare

utf8proc_int32_t as_int(char32_t code) { return static_cast<utf8proc_int32_t>(code); }

utf8proc_category_t category(char32_t code) { return utf8proc_category(as_int(code)); }

constexpr bool white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

Class compute_class(char32_t code) {
  if (white_space(code)) return Class::kSpace;
  const auto kind = category(code);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) return Class::kLetter;
  if (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) return Class::kNumber;
  return Class::kOther;
}

std::vector<Class> class_table() {
  std::vector<Class> table(kPlane);
  for (char32_t code = 0; code < kPlane; ++code) table[code] = compute_class(code);
  return table;
}

// Characters that NFC may change or join to the one before: a text without them is its own NFC.
std::vector<bool> composing_table() {
  std::vector<bool> table(kPlane);
  std::array<utf8proc_int32_t, 16> parts{};
  for (char32_t code = 0; code < kPlane; ++code) {
    const auto* property = utf8proc_get_property(as_int(code));
    if (property->combining_class != 0) table[code] = true;
    // Hangul syllables are their own NFC; their parts are not, and come up below.
    if (code < 0x300) continue;
    const auto count =
        utf8proc_decompose_char(as_int(code), parts.data(), 16, UTF8PROC_DECOMPOSE, nullptr);
    if (count == 1 && parts[0] != as_int(code)) table[code] = true;  // a singleton
    for (utf8proc_ssize_t i = 1; i < count; ++i) {
      const auto part = static_cast<char32_t>(parts[static_cast<size_t>(i)]);
      if (part < kPlane) table[part] = true;
    }
  }
  // Letters that decompose and never come back together (composition exclusions).
  for (char32_t code = 0x300; code < kPlane; ++code) {
    if (table[code] || (code >= 0xD800 && code < 0xE000)) continue;
    std::string one;
    append_utf8(one, code);
    utf8proc_uint8_t* mapped = nullptr;
    const auto size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(one.data()),
                     static_cast<utf8proc_ssize_t>(one.size()), &mapped,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (size < 0 ||
        one != std::string_view(reinterpret_cast<char*>(mapped), static_cast<size_t>(size)))
      table[code] = true;
  }
  return table;
}

bool is_own_nfc(std::string_view text) {
  static const std::vector<bool> composing = composing_table();
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code >= kPlane || (c.code >= 0x300 && composing[c.code])) return false;
    at += c.size;
  }
  return true;
}

}  // namespace

Character last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return character_at(text, at);
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t utf8_size(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  const char32_t code = character_at(text, 0).code;
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  return overlong || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF ? 0 : size;
}

bool is_ascii(std::string_view text) {
  uint64_t all = 0;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t eight;
    std::memcpy(&eight, text.data() + at, 8);
    all |= eight;
  }
  for (; at < text.size(); ++at) all |= static_cast<unsigned char>(text[at]);
  return (all & 0x8080808080808080U) == 0;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    // Long runs of ASCII are the usual case.
    if (text.size() >= 32 && is_ascii(text.substr(0, 32))) {
      text.remove_prefix(32);
      continue;
    }
    const size_t size = utf8_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size() + 16);
  while (!text.empty()) {
    const size_t size = utf8_size(text);
    valid += size == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return valid;
}

Class class_of(char32_t code) {
  static const std::vector<Class> table = class_table();
  return code < kPlane ? table[code] : compute_class(code);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return category(code) == UTF8PROC_CATEGORY_MN; }

bool is_control(char32_t code) {
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_CC && kind <= UTF8PROC_CATEGORY_CO;
}

bool is_word(char32_t code) {
  // The letters in circles and squares are symbols by category.
  const auto kind = category(code);
  return class_of(code) == Class::kLetter || is_mark(code) || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC || code == 0x200C ||
         code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

void lowercase(std::string& text) {
  if (is_ascii(text)) {
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return;
  }
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    // The one character whose lower case is two: i with a dot above it.
    if (c.code == 0x130)
      lower += "i\xCC\x87";
    else
      append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(as_int(c.code))));
    at += c.size;
  }
  text = std::move(lower);
}

void normalize(std::string& text, NormalForm form) {
  if (is_ascii(text) || (form == NormalForm::kNfc && is_own_nfc(text))) return;
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  TEMPERA_CHECK(size >= 0, "the text cannot be normalised: ", utf8proc_errmsg(size));
  text.assign(reinterpret_cast<char*>(mapped), static_cast<size_t>(size));
}

size_t grapheme_end(std::string_view text, size_t at) {
  Character before = character_at(text, at);
  utf8proc_int32_t state = 0;
  at += before.size;
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (utf8proc_grapheme_break_stateful(as_int(before.code), as_int(next.code), &state)) break;
    at += next.size;
    before = next;
  }
  return at;
}

}  // namespace tempera::text
