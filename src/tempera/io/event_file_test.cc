#include "tempera/io/event_file.h"

#include <gtest/gtest.h>

#include <string>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/io/crc32c.h"

namespace tempera::io {
namespace {

// The vectors of RFC 3720, appendix B.4, and the common check value.
TEST(Crc32c, GivesTheKnownChecksums) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising.push_back(static_cast<char>(i));
    falling.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cU);
}

std::string hex(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

// By hand from the encoding of Protocol Buffers: keys are field * 8 + type.
TEST(EventFile, EncodesAScalar) {
  const std::vector<EventValue> values = {{"loss", 0.5F}};
  EXPECT_EQ(hex(encode_event(1.0, 300, values)),
            "09000000000000f03f"  // 1: wall time 1.0
            "10ac02"              // 2: step 300
            "2a0d"                // 5: summary of 13 bytes
            "0a0b"                // 1: value of 11 bytes
            "0a046c6f7373"        // 1: tag
            "150000003f");        // 2: 0.5
}

TEST(EventFile, EncodesAHistogram) {
  const std::vector<EventValue> values = {
      {"h",
       EventHistogram{
           .least = 1, .largest = 2, .sum = 3, .squares = 5, .limits = {1, 2}, .counts = {1, 1}}}};
  const std::string one = "000000000000f03f", two = "0000000000000040";
  EXPECT_EQ(hex(encode_event(1.0, 1, values)),
            "09" + one + "1001" + "2a58" + "0a56" + "0a0168" + "2a51"    //
                + "09" + one + "11" + two + "19" + two                   // least, largest, count
                + "21" + "0000000000000840" + "29" + "0000000000001440"  // sum, squares
                + "3210" + one + two + "3a10" + one + one);
}

TEST(EventFile, ARecordHasItsLengthAndTwoChecksums) {
  const std::string record = event_record("abc");
  ASSERT_EQ(record.size(), 8 + 4 + 3 + 4U);
  EXPECT_EQ(hex(record.substr(0, 8)), "0300000000000000");
  EXPECT_EQ(record.substr(12, 3), "abc");
  const auto read = [&](size_t at) {
    uint32_t value = 0;
    for (size_t byte = 0; byte < 4; ++byte)
      value |= uint32_t{static_cast<unsigned char>(record[at + byte])} << (8 * byte);
    return value;
  };
  // Undoes the mask.
  const auto plain = [](uint32_t value) {
    const uint32_t turned = value - 0xa282ead8U;
    return (turned >> 17U) | (turned << 15U);
  };
  EXPECT_EQ(plain(read(8)), crc32c(record.substr(0, 8)));
  EXPECT_EQ(plain(read(15)), crc32c("abc"));
}

TEST(EventFile, NeverWritesOverAFile) {
  const TempFolder folder;
  const auto path = folder.path() / "events";
  {
    EventFile file(path);
    file.append(encode_version(1));
    file.append(encode_restart(2, 7));
    file.sync();
  }
  const std::string before = read_file(path, 1000);
  EXPECT_EQ(before, event_record(encode_version(1)) + event_record(encode_restart(2, 7)));
  EXPECT_THROW(EventFile{path}, Error);
  EXPECT_EQ(read_file(path, 1000), before);
}

}  // namespace
}  // namespace tempera::io
