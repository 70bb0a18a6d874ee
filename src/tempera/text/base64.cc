#include "tempera/text/base64.h"

#include <cstdint>

#include "tempera/base/error.h"

namespace tempera::text {

std::string decode_base64(std::string_view text, std::string_view where) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    TEMPERA_CHECK(digit != std::string_view::npos, where, ": not base64");
    held = held << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>(held >> bits & 0xFF));
    }
  }
  return bytes;
}

}  // namespace tempera::text
