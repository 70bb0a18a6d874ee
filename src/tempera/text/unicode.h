#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tempera::text {

// U+2581, which stands for a blank in the pieces of sentencepiece.
inline constexpr std::string_view kBlankMark = "\xE2\x96\x81";

// A character of UTF-8 text; the text is valid (see valid_utf8).
struct Character {
  char32_t code = 0;
  uint32_t size = 1;  // in bytes
};

// The character at `at`, which is inside the text and at the start of a character.
inline Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// The last character of a text that is not empty.
Character last_character(std::string_view text);

void append_utf8(std::string& text, char32_t code);

// The size of the character at the start of the text; 0 if its bytes are not one.
size_t utf8_size(std::string_view text);
bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
// The text with U+FFFD for each byte that belongs to no character.
std::string valid_utf8(std::string_view text);

// What the patterns of byte-level tokenizers tell apart; \s, \p{L}, \p{N} and the rest.
enum class Class : uint8_t { kOther, kLetter, kNumber, kSpace };
Class class_of(char32_t code);

inline bool is_space(char32_t code) { return class_of(code) == Class::kSpace; }
inline bool is_number(char32_t code) { return class_of(code) == Class::kNumber; }
bool is_punctuation(char32_t code);  // ASCII punctuation and symbols, and category P
bool is_mark(char32_t code);         // category M
bool is_nonspacing_mark(char32_t code);
bool is_control(char32_t code);  // category C without what is not assigned
bool is_word(char32_t code);     // \w

// Every character in lower case by itself: no final sigma.
void lowercase(std::string& text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
void normalize(std::string& text, NormalForm form);

// The end of the grapheme cluster that starts at `at`.
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace tempera::text
