#include "tempera/text/pattern.h"

#include <gtest/gtest.h>

#include <random>

#include "tempera/base/error.h"
#include "tempera/text/scanner.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

std::vector<std::string> found(const Pattern& pattern, std::string_view text) {
  std::vector<Range> matches;
  pattern.find_all(text, matches);
  std::vector<std::string> parts;
  for (const Range& match : matches)
    parts.emplace_back(text.substr(match.begin, match.end - match.begin));
  return parts;
}

using Parts = std::vector<std::string>;

TEST(Pattern, Matches) {
  EXPECT_EQ(found(Pattern::literal("ab"), "xababyab"), (Parts{"ab", "ab", "ab"}));
  EXPECT_EQ(found(Pattern::literal(""), "x"), Parts{});
  EXPECT_EQ(found(Pattern::regex("[0-9]{1,3}"), "12345 é6"), (Parts{"123", "45", "6"}));
  // Empty matches, but none where a match ends.
  std::vector<Range> matches;
  Pattern::regex("a*").find_all("baac", matches);
  EXPECT_EQ(matches, (std::vector<Range>{{0, 0}, {1, 3}, {4, 4}}));
  // Lines, as Oniguruma has them; \s without U+180E; \h is a hexadecimal digit.
  EXPECT_EQ(found(Pattern::regex("^."), "ab\ncd"), (Parts{"a", "c"}));
  EXPECT_EQ(found(Pattern::regex("[\\s]|\\s"), "\u180e\u0085 "), (Parts{"\u0085", " "}));
  EXPECT_EQ(found(Pattern::regex("\\h+"), "xafg 1"), (Parts{"af", "1"}));
  EXPECT_EQ(found(Pattern::regex("[]x]+"), "a]x"), Parts{"]x"});
}

TEST(Pattern, FaultsAreNamed) {
  const auto message = [](const std::string& expression) {
    try {
      Pattern::regex(expression);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("(a").find("'(a' is not valid"), std::string::npos);
  EXPECT_NE(message("a{1,3}+").find("{n,m}+"), std::string::npos);
  EXPECT_EQ(message("[{}+]"), "");
  EXPECT_NE(message(std::string(70000, 'a')).find("70000 bytes"), std::string::npos);
}

TEST(Pattern, AnExpressionThatTakesForeverIsAnError) {
  const Pattern pattern = Pattern::regex("(a|aa)+[bc]");
  std::vector<Range> matches;
  EXPECT_THROW(pattern.find_all(std::string(5000, 'a'), matches), Error);
}

// The scanners have to find what PCRE2 finds.
TEST(Scanner, AgreesWithThePattern) {
  const std::vector<std::string> letters{
      "a",      "S",      "s",          "t",          "r",      "e",  "v",      "m",
      "l",      "L",      "d",          "'",          "'",      " ",  " ",      " ",
      "\n",     "\r",     "\t",         "1",          "2",      "3",  "\u00bd", "!",
      "-",      "\u00e9", "\u017f",     "\u0301",     "\u00a0", "字", "\u2028", "\u0085",
      "\u180e", "\u3000", "\U0001F600", "\U00010400", "_"};
  std::mt19937 random(3);
  for (const std::string& expression : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const Pattern scanner = Pattern::regex(expression);
    const Pattern oracle = Pattern::regex_by_pcre2(expression);
    for (int round = 0; round < 20000; ++round) {
      std::string text;
      const size_t length = 1 + random() % 12;
      for (size_t i = 0; i < length; ++i) text += letters[random() % letters.size()];
      ASSERT_EQ(found(scanner, text), found(oracle, text)) << text << " by " << expression;
    }
  }
}

TEST(Scanner, WordsOfKnownPatterns) {
  EXPECT_EQ(found(Pattern::regex(kGpt2Pattern), "I'll  go!\n\n 12345"),
            (Parts{"I", "'ll", " ", " go", "!", "\n\n", " 12345"}));
  EXPECT_EQ(found(Pattern::regex(kLlama3Pattern), "I'LL\t go!\n\n 12345"),
            (Parts{"I", "'LL", "\t", " go", "!\n\n", " ", "123", "45"}));
  EXPECT_EQ(found(Pattern::regex(kQwen2Pattern), "a 12"), (Parts{"a", " ", "1", "2"}));
}

}  // namespace
}  // namespace tempera::text
