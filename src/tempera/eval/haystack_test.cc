#include "tempera/eval/haystack.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/eval/testing_text.h"

namespace tempera::eval {
namespace {

// Bytes, and a blank with the digit behind it as one token, as GPT-2 has it.
class JoiningTokenizer final : public text::Tokenizer {
 public:
  std::string name() const override { return "joining"; }
  int64_t vocabulary() const override { return kJoined + 10; }
  text::SpecialTokens special() const override { return {}; }
  bool is_special(int32_t /*id*/) const override { return false; }
  std::string piece(int32_t id) const override {
    if (id < kJoined) return {static_cast<char>(id)};
    return {' ', static_cast<char>('0' + id - kJoined)};
  }
  std::optional<int32_t> find(std::string_view /*piece*/) const override { return {}; }

 private:
  static constexpr int32_t kJoined = 256;

  void encode_text(std::string_view text, text::EncodeOptions /*options*/,
                   std::vector<int32_t>& ids) const override {
    for (size_t i = 0; i < text.size(); ++i) {
      const bool joins = text[i] == ' ' && i + 1 < text.size() && std::isdigit(text[i + 1]) != 0;
      ids.push_back(joins ? kJoined + text[++i] - '0' : static_cast<unsigned char>(text[i]));
    }
  }
  void decode_ids(std::span<const int32_t> ids, text::SpecialText /*specials*/,
                  std::string& text) const override {
    for (const int32_t id : ids) text += piece(id);
  }
};

class HaystackTest : public testing::Test {
 protected:
  HaystackTest() {
    std::ofstream(folder_.path() / "hay.txt") << "Aa aa. Bb bb bb. Cc cc! Dd dd? Ee.";
    files_ = {(folder_.path() / "hay.txt").string()};
  }

  TempFolder folder_;
  std::vector<std::string> files_;
  text::ByteTokenizer bytes_;
};

TEST_F(HaystackTest, BeginsWithASentenceAndStartsAgain) {
  const Haystack hay(files_, bytes_);
  for (uint32_t lane = 0; lane < 20; ++lane) {
    data::RandomStream random(1, 0, lane);
    const auto piece = hay.take(random, 50);
    const auto text = text_of(piece.tokens);
    EXPECT_EQ(text.size(), 50U);
    EXPECT_NE(std::string_view("ABCDE").find(text[text[0] == ' ' ? 1 : 0]), std::string::npos);
    for (size_t i = 0; i < 50; ++i)
      EXPECT_EQ(piece.ends[i], std::string_view(".!?").find(text[i]) != std::string::npos);
  }
}

TEST_F(HaystackTest, HidesBetweenSentencesAtTheExactLength) {
  const Haystack hay(files_, bytes_);
  for (const double depth : {0.0, 0.3, 0.5, 0.9, 1.0}) {
    data::RandomStream random(2, 0);
    const HiddenText hidden{.preamble = "Read:",
                            .needles = {{depth, " Key 17."}, {1 - depth, " Door 4."}},
                            .questions = {{"\nKey?", " 17"}, {"\nAnd the door?", " 4"}}};
    const auto requests = hide(hidden, hay, bytes_, 120, random, 5);
    ASSERT_EQ(requests.size(), 2U);
    EXPECT_EQ(requests[1].context.size() + requests[1].continuation.size(), 120U);
    EXPECT_EQ(requests[0].group, 5U);
    const auto text = text_of(requests[0].context);
    EXPECT_TRUE(text.starts_with("Read:")) << text;
    EXPECT_TRUE(text.ends_with("\nKey? ")) << text;
    EXPECT_EQ(text_of(requests[0].continuation), "17");
    const size_t at = text.find(" Key 17.");
    ASSERT_NE(at, std::string::npos);
    ASSERT_NE(text.find(" Door 4."), std::string::npos);
    if (depth == 0) {
      EXPECT_EQ(at, 5U);
    }
    if (depth > 0 && depth < 1) {
      EXPECT_NE(std::string_view(".!?").find(text[at - 1]), std::string::npos) << text;
    }
    if (depth == 1) {
      EXPECT_EQ(at + 8 + 6, text.size());
    }
    EXPECT_NEAR(static_cast<double>(at), 5 + depth * 86, depth == 0.9 ? 24 : 16) << text;
  }
}

// Whether a model would rather write a word than a blank is not what is asked.
TEST_F(HaystackTest, GivesTheBlankThatIsATokenOfItsOwn) {
  const HiddenText hidden{
      .preamble = "", .needles = {{0.5, " Key 17."}}, .questions = {{"\nIt is", " 17"}}};
  const auto asked = [&](const text::Tokenizer& tokenizer) {
    data::RandomStream random(2, 0);
    const auto request = hide(hidden, Haystack(files_, tokenizer), tokenizer, 60, random, 0).at(0);
    EXPECT_EQ(request.context.size() + request.continuation.size(), 60U);
    std::string context, answer;
    tokenizer.decode(request.context, context);
    tokenizer.decode(request.continuation, answer);
    EXPECT_TRUE((context + answer).ends_with("\nIt is 17")) << context << "|" << answer;
    return answer;
  };
  EXPECT_EQ(asked(bytes_), "17");
  EXPECT_EQ(asked(JoiningTokenizer()), " 17");
}

TEST_F(HaystackTest, RefusesATextThatIsTooShort) {
  const Haystack hay({}, bytes_);
  data::RandomStream random(2, 0);
  const HiddenText hidden{
      .preamble = "", .needles = {{0.5, " Key 17."}}, .questions = {{"?", " 17"}}};
  EXPECT_EQ(hide(hidden, hay, bytes_, 12, random, 0)[0].context.size(), 10U);
  EXPECT_THROW(hide(hidden, hay, bytes_, 11, random, 0), UsageError);
}

TEST_F(HaystackTest, FillerHasNoDigits) {
  data::RandomStream random(3, 0);
  std::string last;
  for (int i = 0; i < 100; ++i) {
    const auto sentence = filler_sentence(random);
    EXPECT_EQ(sentence.find_first_of("0123456789"), std::string::npos);
    EXPECT_TRUE(sentence.ends_with('.'));
    EXPECT_NE(sentence, last);
    last = sentence;
  }
  EXPECT_EQ(random_number(random, 7).size(), 7U);
}

}  // namespace
}  // namespace tempera::eval
