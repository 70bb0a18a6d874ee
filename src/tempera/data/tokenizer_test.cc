#include "tempera/data/tokenizer.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"

namespace tempera::data {
namespace {

TEST(ByteTokenizer, AnyBytesComeBack) {
  std::string text = "<|endoftext|>";
  for (int c = 0; c < 256; ++c) text.push_back(static_cast<char>(c));
  const ByteTokenizer tokenizer;
  std::vector<int32_t> ids{1};
  tokenizer.encode(text, ids);
  ASSERT_EQ(ids.size(), text.size() + 1);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[1], '<');
  for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 256);
  std::string back;
  tokenizer.decode(std::span(ids).subspan(1), back);
  EXPECT_EQ(back, text);
}

TEST(ByteTokenizer, SpecialTokensGiveNoText) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocabulary(), 259);
  EXPECT_EQ(tokenizer.special().end_of_text, 256);
  const std::vector<int32_t> ids{'a', 256, 257, 258, 'b'};
  std::string text;
  tokenizer.decode(ids, text);
  EXPECT_EQ(text, "ab");
  const std::vector<int32_t> wrong{259};
  EXPECT_THROW(tokenizer.decode(wrong, text), Error);
  const std::vector<int32_t> negative{-1};
  EXPECT_THROW(tokenizer.decode(negative, text), Error);
}

}  // namespace
}  // namespace tempera::data
