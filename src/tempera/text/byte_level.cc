#include "tempera/text/byte_level.h"

#include <array>

#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x180> bytes;  // of a character; -1: none
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t spare = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const char32_t code = printable ? byte : spare++;
    append_utf8(alphabet.characters[byte], code);
    alphabet.bytes[code] = static_cast<int>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet made = make_alphabet();
  return made;
}

}  // namespace

void append_byte_level(std::string_view bytes, std::string& text) {
  for (const char c : bytes) text += alphabet().characters[static_cast<unsigned char>(c)];
}

std::optional<std::string> byte_level_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const int byte = c.code < alphabet().bytes.size() ? alphabet().bytes[c.code] : -1;
    if (byte < 0) return {};
    bytes.push_back(static_cast<char>(byte));
    at += c.size;
  }
  return bytes;
}

}  // namespace tempera::text
