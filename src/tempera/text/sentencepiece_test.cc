#include "tempera/text/sentencepiece.h"

#include <gtest/gtest.h>

#include <bit>

#include "tempera/base/error.h"
#include "tempera/text/stream.h"
#include "tempera/text/testing.h"

namespace tempera::text {
namespace {

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>((value & 0x7F) | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string number_field(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}

std::string bytes_field(int field, const std::string& bytes) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score, int type = 1) {
  std::string real(4, '\0');
  const auto bits = std::bit_cast<uint32_t>(score);
  for (size_t i = 0; i < 4; ++i) real[i] = static_cast<char>(bits >> (8 * i) & 0xFF);
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) + real +
                            number_field(3, static_cast<uint64_t>(type)));
}

std::string file(uint64_t algorithm) {
  std::string bytes = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
                      piece("▁", -5) + piece("a", -3) + piece("b", -4) + piece("ab", -1) +
                      piece("▁a", -2) + piece("<sep>", 0, 4);
  return bytes + bytes_field(2, number_field(3, algorithm)) + bytes_field(3, number_field(4, 0));
}

Ids ids_of(const std::string& bytes, std::string_view text, EncodeOptions options = {}) {
  return ids_of(*make_tokenizer(sentencepiece_parts(parse_sentencepiece(bytes, "test"))), text,
                options);
}

TEST(SentencePiece, BpeJoinsByScore) {
  EXPECT_EQ(ids_of(file(2), "ab"), (Ids{3, 6}));  // ab before ▁a
  EXPECT_EQ(ids_of(file(2), "aa b"), (Ids{7, 4, 3, 5}));
  EXPECT_EQ(ids_of(file(2), "axyb"), (Ids{7, 0, 5}));  // one unknown for two characters
  EXPECT_EQ(ids_of(file(2), "a<sep>b"), (Ids{7, 8, 5}));
  EXPECT_EQ(ids_of(file(2), "a", {.add_special = true}), (Ids{1, 7}));
  EXPECT_EQ(ids_of(file(2), "<s>").front(), 3);
  EXPECT_EQ(ids_of(file(2), "<s>", {.parse_special = true}), Ids{1});
}

TEST(SentencePiece, UnigramTakesTheBestSum) {
  EXPECT_EQ(ids_of(file(1), "ab"), (Ids{3, 6}));  // -5 - 1 and -2 - 4 tie: the first found stays
  EXPECT_EQ(ids_of(file(1), "aab"), (Ids{7, 6}));
  EXPECT_EQ(ids_of(file(1), "a", {.add_special = true}), (Ids{7, 2}));
}

TEST(SentencePiece, TextComesBackWithoutItsPrefix) {
  const auto tokenizer = make_tokenizer(sentencepiece_parts(parse_sentencepiece(file(2), "test")));
  std::vector<int32_t> ids;
  tokenizer->encode("ab  a b", ids);
  std::string text, streamed;
  tokenizer->decode(ids, text);
  EXPECT_EQ(text, "ab  a b");
  StreamDecoder stream(*tokenizer);
  for (const int32_t id : ids) streamed += stream.push(id);
  EXPECT_EQ(streamed + stream.finish(), text);
}

TEST(SentencePiece, HostileFilesAreRefused) {
  const std::string good = file(2);
  for (size_t size = 0; size < good.size(); ++size) {
    try {
      sentencepiece_parts(parse_sentencepiece(good.substr(0, size), "test"));
    } catch (const Error&) {
    }
  }
  EXPECT_THROW(parse_sentencepiece("", "test"), Error);
  EXPECT_THROW(parse_sentencepiece("hello", "test"), Error);
  EXPECT_THROW(parse_sentencepiece(std::string(20, '\xFF'), "test"), Error);
  EXPECT_THROW(parse_sentencepiece(file(3), "test"), Error);
  EXPECT_THROW(parse_sentencepiece(good + piece("x", 0, 9), "test"), Error);
  EXPECT_THROW(sentencepiece_parts(parse_sentencepiece(good + piece("u", 0, 2), "test")), Error);
  EXPECT_THROW(sentencepiece_parts(parse_sentencepiece(piece("a", 0), "test")), Error);
  const std::string map = bytes_field(3, bytes_field(2, std::string("\x10\0\0\0xx", 6)));
  EXPECT_THROW(sentencepiece_parts(parse_sentencepiece(good + map, "test")), Error);
}

}  // namespace
}  // namespace tempera::text
