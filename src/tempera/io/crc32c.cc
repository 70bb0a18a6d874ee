#include "tempera/io/crc32c.h"

#include <array>

namespace tempera::io {
namespace {

// What each byte does to a checksum, the lowest bit first.
constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) ? kPolynomial : 0U);
    table[byte] = value;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t value = ~uint32_t{0};
  for (const char c : bytes)
    value = (value >> 8U) ^ kTable[(value ^ static_cast<unsigned char>(c)) & 0xffU];
  return ~value;
}

}  // namespace tempera::io
