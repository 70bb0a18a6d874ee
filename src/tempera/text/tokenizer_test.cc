#include "tempera/text/tokenizer.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/text/sequence_tokens.h"

namespace tempera::text {
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

TEST(ByteTokenizer, SpecialTokensGiveTextOnlyWhenAsked) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocabulary(), 259);
  EXPECT_EQ(tokenizer.special().end_of_text, 256);
  const std::vector<int32_t> ids{'a', 256, 257, 258, 'b'};
  std::string text, shown;
  tokenizer.decode(ids, text);
  EXPECT_EQ(text, "ab");
  tokenizer.decode(ids, shown, SpecialText::kShow);
  EXPECT_EQ(shown, "a<|endoftext|><|pad|><|mask|>b");
  std::vector<int32_t> parsed;
  tokenizer.encode(shown, parsed, {.parse_special = true});
  EXPECT_EQ(parsed, ids);
  const std::vector<int32_t> wrong{259};
  EXPECT_THROW(tokenizer.decode(wrong, text), Error);
  const std::vector<int32_t> negative{-1};
  EXPECT_THROW(tokenizer.decode(negative, text), Error);
}

TEST(ByteTokenizer, EveryPieceIsFound) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.piece('A'), "<0x41>");
  EXPECT_EQ(tokenizer.piece(257), "<|pad|>");
  for (int32_t id = 0; id < 259; ++id) EXPECT_EQ(tokenizer.find(tokenizer.piece(id)), id);
  for (const char* piece : {"A", "<0x4>", "<0x4g>", "<|pad|>x", "<0x41", ""})
    EXPECT_FALSE(tokenizer.find(piece)) << piece;
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_FALSE(tokenizer.is_special('A'));
}

TEST(SequenceTokens, MissingIdsFollowTheVocabulary) {
  const SequenceTokens ids{ByteTokenizer()};
  EXPECT_EQ(ids.vocabulary, 259);
  EXPECT_EQ(ids.mask, 258);
  EXPECT_EQ(ids.sentinels.front(), 259);
  EXPECT_EQ(ids.vocabulary_of_spans, 359);
  EXPECT_FALSE(ids.special['a']);
  EXPECT_TRUE(ids.special[257] && ids.special[358]);
}

TEST(SequenceTokens, TextsEndWithTheEndAndAreCutBeforeIt) {
  const ByteTokenizer tokenizer;
  const SequenceTokens ids(tokenizer);
  auto tokens = encode_sequence(tokenizer, ids, "abc");
  EXPECT_EQ(tokens, (std::vector<int64_t>{'a', 'b', 'c', 256}));
  cut_sequence(tokens, 3);
  EXPECT_EQ(tokens, (std::vector<int64_t>{'a', 'b', 256}));
  EXPECT_EQ(encode_sequence(tokenizer, ids, ""), std::vector<int64_t>{256});
}

}  // namespace
}  // namespace tempera::text
