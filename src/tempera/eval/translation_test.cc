#include "tempera/eval/translation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tempera/base/error.h"
#include "tempera/data/text.h"

namespace tempera::eval {
namespace {

using Lines = std::vector<std::string>;

TEST(Translation, WordsAreThoseOfMteval13a) {
  EXPECT_EQ(bleu_words("Ein Mann, 3,5 m groß (ca. 10-12 Jahre)…"),
            (Lines{"Ein", "Mann", ",", "3,5", "m", "groß", "(", "ca", ".", "10", "-", "12", "Jahre",
                   ")", "…"}));
  EXPECT_EQ(bleu_words("It's 1,000.50$ &amp; more/less <skipped> [x]"),
            (Lines{"It's", "1,000.50", "$", "&", "more", "/", "less", "[", "x", "]"}));
  EXPECT_EQ(bleu_words("...,,.5,a.b.c 7-8-9-x - -"),
            (Lines{".", ".", ".", ",", ",", ".5", ",", "a", ".", "b", ".",
                   "c", "7", "-", "8", "-", "9",  "-", "x", "-", "-"}));
  EXPECT_EQ(bleu_words("end-\nof line\n"), (Lines{"endof", "line"}));
  EXPECT_EQ(bleu_words(" \xC2\xA0 "), Lines{});
}

// The figures are of sacrebleu 2.6.0: corpus_bleu(translations, [references]).score, and
// corpus_chrf in its place.
TEST(Translation, ScoresAreThoseOfSacrebleu) {
  struct ScoreCase {
    Lines translations, references;
    double bleu, chrf;
  };
  const std::vector<ScoreCase> cases = {
      {{"The cat is on the mat."},
       {"There is a cat on the mat."},
       39.44243648327556,
       51.142028044874145},
      {{"Ein Mann, 3,5 m groß (ca. 10-12 Jahre)…", "", "naïve café — “quoted” 日本語テスト"},
       {"Ein Mann von 3.5 m, groß (etwa 10-12 Jahre)…", "nicht leer",
        "naive café – “quoted” 日本語のテスト"},
       31.44378024949771,
       50.54043860893793},
      {{"a b c d e", "It's 1,000.50$ &amp; more/less <skipped> [x]"},
       {"a b c d f", ""},
       18.777395725498344,
       54.333333333333336},
      {{"one two"}, {"one three"}, 0, 25.941574118783194},  // no three words in a row
      {{"a\u00a0b\u3000c\u2028d e"}, {"a b c d e f"}, 81.87307530779823, 75.37154989384288},
      {{"x"}, {"y"}, 0, 0},
      {{""}, {""}, 0, 0}};
  for (const auto& [translations, references, bleu, chrf] : cases) {
    const auto scores = score_translations(translations, references);
    EXPECT_NEAR(scores.bleu, bleu, 1e-10) << translations[0];
    EXPECT_NEAR(scores.chrf, chrf, 1e-10) << translations[0];
  }
}

TEST(Translation, ScoresOfRealTextsAreThoseOfSacrebleu) {
  const char* home = std::getenv("HOME");
  const char* given = std::getenv("TEMPERA_DATA");
  const std::filesystem::path data =
      given ? given : std::filesystem::path(home ? home : "") / ".cache/tempera-data";
  const auto folder = data / "eval/multi30k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no Multi30k in " << folder;
  const Lines german = data::read_lines(folder / "test_2016_flickr.de");
  const Lines english = data::read_lines(folder / "test_2016_flickr.en");
  const auto foreign = score_translations(english, german);
  EXPECT_EQ(foreign.sentences, 1000);
  EXPECT_NEAR(foreign.bleu, 0.47828790014374517, 1e-10);
  EXPECT_NEAR(foreign.chrf, 16.344733257676257, 1e-10);
  // The first two words of each sentence change places, the fourth is left out.
  Lines worse;
  for (const auto& line : german) {
    Lines words;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      words.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    if (words.size() > 3) {
      std::swap(words[0], words[1]);
      words.erase(words.begin() + 3);
    }
    std::string joined;
    for (const auto& word : words) joined += (joined.empty() ? "" : " ") + word;
    worse.push_back(joined);
  }
  const auto scores = score_translations(worse, german);
  EXPECT_NEAR(scores.bleu, 67.22477971500321, 1e-10);
  EXPECT_NEAR(scores.chrf, 80.84360391209907, 1e-10);
}

TEST(Translation, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(bleu_words("a \xFF b"), (Lines{"a", "\uFFFD", "b"}));
  EXPECT_GT(chrf_counts("\xFF\xFE", "\xFF\xFE").matched[0], 0);
}

TEST(Translation, NeedsAReferenceForEach) {
  EXPECT_THROW(score_translations(Lines{"a"}, Lines{"a", "b"}), Error);
  EXPECT_THROW(score_translations(Lines{}, Lines{}), Error);
}

}  // namespace
}  // namespace tempera::eval
