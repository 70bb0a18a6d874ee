#include "tempera/generate/text.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"
#include "tempera/text/unicode.h"

namespace tempera::generate {
namespace {

const text::ByteTokenizer kBytes;

// What a stream gives for each byte of the text, '|' between.
std::string pieces(const std::string& text, const std::vector<std::string>& stop) {
  TextStream stream(kBytes, stop);
  std::string given;
  for (const char c : text) {
    given += stream.add(static_cast<unsigned char>(c)) + "|";
    if (stream.stopped()) return given;
  }
  return given + stream.finish();
}

TEST(TextStream, GivesTextAtOnceUnlessItMayBeAStopString) {
  EXPECT_EQ(pieces("abc", {}), "a|b|c|");
  EXPECT_EQ(pieces("abXYc", {"XYZ"}), "a|b|||XYc|");
  EXPECT_EQ(pieces("abXYZc", {"XYZ"}), "a|b||||");
  EXPECT_EQ(pieces("aXXYZ", {"XYZ"}), "a||X|||");
  EXPECT_EQ(pieces("aXY", {"XYZ"}), "a|||XY");
  EXPECT_EQ(pieces("ab", {"c", "b"}), "a||");
}

TEST(TextStream, GivesWholeCharacters) {
  EXPECT_EQ(pieces("\xC3\xA9x\xE2\x82\xAC", {}), "|\xC3\xA9|x|||\xE2\x82\xAC|");
  // What is no character becomes U+FFFD, as soon as that is certain.
  const std::string wrong = "\xEF\xBF\xBD";
  EXPECT_EQ(pieces("\xF0\x9F\x99", {}), "|||" + wrong + wrong + wrong);
  EXPECT_EQ(pieces("\x80\x80", {}), wrong + "|" + wrong + "|");
}

TEST(TextStream, SkipsIdsBeyondTheTokenizer) {
  const std::vector<std::string> no_stop;
  TextStream stream(kBytes, no_stop);
  EXPECT_EQ(stream.add(text::ByteTokenizer::kVocabulary), "");
  EXPECT_EQ(stream.add('a') + stream.add(1'000'000) + stream.add('b'), "ab");
}

std::shared_ptr<nn::Model> byte_model() {
  auto config = nn::tiny_config();
  config.vocabulary = text::ByteTokenizer::kVocabulary;
  const auto model = nn::moved_model(config);
  model->eval();
  return model;
}

// The first whole character from a place on.
std::string character_at(const std::string& text, size_t place) {
  const auto continues = [&](size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (continues(place)) ++place;
  size_t end = place + 1;
  while (continues(end)) ++end;
  return text.substr(place, end - place);
}

TEST(GenerateText, EqualsTheTokensAndStops) {
  const auto model = byte_model();
  TextOptions options;
  options.tokens.max_tokens = 40;
  std::vector<std::string> streamed(2);
  const auto answers =
      generate_text(*model, kBytes, {"ab", ""}, options,
                    [&](size_t prompt, std::string_view piece) { streamed[prompt] += piece; });
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answers[i].text, streamed[i]);
    std::string text;
    for (const int64_t id : answers[i].tokens.ids()) {
      const auto byte = static_cast<int32_t>(id);
      kBytes.decode({&byte, 1}, text);
    }
    EXPECT_EQ(answers[i].text, text::valid_utf8(text));
  }
  ASSERT_GT(answers[0].text.size(), 8U);
  options.stop = {character_at(answers[0].text, 4)};
  const auto stopped = generate_text(*model, kBytes, {"ab", ""}, options);
  EXPECT_EQ(stopped[0].finish, Finish::kStop);
  EXPECT_EQ(stopped[0].text, answers[0].text.substr(0, answers[0].text.find(options.stop[0])));
  options.stop = {""};
  EXPECT_THROW(generate_text(*model, kBytes, {"ab"}, options), Error);
}

}  // namespace
}  // namespace tempera::generate
