#include "tempera/eval/ruler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/eval/testing_text.h"

namespace tempera::eval {
namespace {

const text::ByteTokenizer& bytes() {
  static const text::ByteTokenizer tokenizer;
  return tokenizer;
}

const RulerSource& source() {
  static const RulerSource made({}, bytes());
  return made;
}

RulerCase make(const std::string& name, int64_t length, uint32_t number = 0) {
  data::RandomStream random(7, static_cast<uint64_t>(length), number);
  return find_ruler_tasks(name).at(0).make(source(), length, random);
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Ruler, PromptAndAnswerFillTheLength) {
  for (const auto& task : ruler_tasks())
    for (const int64_t length : {3000, 8192}) {
      const auto made = make(task.name, length);
      const auto tokens = static_cast<int64_t>(made.prompt.size()) + task.new_tokens;
      EXPECT_LE(tokens, length) << task.name;
      EXPECT_GT(tokens, length * 9 / 10) << task.name;
      EXPECT_FALSE(made.references.empty());
    }
}

TEST(Ruler, WhatIsAskedForStandsInTheText) {
  for (const auto& task : ruler_tasks())
    for (uint32_t number = 0; number < 5; ++number) {
      const auto made = make(task.name, 8192, number);
      const auto text = text_of(made.prompt);
      std::set<std::string> distinct;
      for (const auto& reference : made.references) {
        EXPECT_GE(count(text, reference), 1) << task.name << " " << reference;
        distinct.insert(reference);
      }
      EXPECT_EQ(distinct.size(), made.references.size()) << task.name;
      const auto other = make(task.name, 8192, number + 100);
      EXPECT_NE(other.references, made.references) << task.name;
    }
}

TEST(Ruler, TheTasksHaveTheirNumbers) {
  const auto references = [](const char* name) { return make(name, 8192).references.size(); };
  EXPECT_EQ(references("ruler-niah-single-1"), 1U);
  EXPECT_EQ(references("ruler-niah-multivalue"), 4U);
  EXPECT_EQ(references("ruler-niah-multiquery"), 4U);
  EXPECT_EQ(references("ruler-vt"), 5U);
  EXPECT_EQ(references("ruler-cwe"), 10U);
  EXPECT_EQ(references("ruler-fwe"), 3U);
  const auto text = [](const char* name) { return text_of(make(name, 4096).prompt); };
  EXPECT_EQ(count(text("ruler-niah-multikey-1"), "One secret number of "), 4);
  EXPECT_GT(count(text("ruler-niah-multikey-2"), "One secret number of "), 30);
  EXPECT_EQ(make("ruler-niah-single-3", 4096).references[0].size(), 36U);
  EXPECT_EQ(ruler_tasks().size(), 12U);
}

// Or an answer could be one of several numbers, and be scored as wrong.
TEST(Ruler, OneNameAmongNeedlesHasOneNumber) {
  for (uint32_t number = 0; number < 20; ++number) {
    const auto text = text_of(make("ruler-niah-multikey-2", 32768, number).prompt);
    const std::string before = "What is the secret number of ";
    const size_t begin = text.find(before) + before.size();
    const auto name = text.substr(begin, text.find(" that the text mentions") - begin);
    EXPECT_EQ(count(text, "One secret number of " + name + " is: "), 1) << name;
  }
}

// The chain can be followed: every variable stands behind the one that it is assigned to.
TEST(Ruler, AChainOfVariablesInOrder) {
  for (uint32_t number = 0; number < 10; ++number) {
    const auto made = make("ruler-vt", 4096, number);
    const auto text = text_of(made.prompt);
    size_t before = 0;
    for (size_t i = 0; i < made.references.size(); ++i) {
      const auto part = "VAR " + made.references[i] + " = " +
                        (i > 0 ? "VAR " + made.references[i - 1] + "." : "");
      const size_t place = text.find(part);
      ASSERT_NE(place, std::string::npos) << part;
      EXPECT_GT(place, before);
      before = place;
    }
  }
}

void expect_most_frequent(const std::string& name, const RulerCase& made) {
  std::map<std::string, int64_t> counts;
  const std::string text = text_of(made.prompt);
  std::istringstream words(text.substr(text.find('\n'), text.rfind("\nQ") - text.find('\n')));
  for (std::string word; words >> word;)
    if (word != "..." && !word.ends_with('.')) ++counts[word];
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& reference : made.references) {
    least = std::min(least, counts[reference]);
    counts.erase(reference);
  }
  for (const auto& [word, times] : counts) EXPECT_LT(times, least) << name << " " << word;
  EXPECT_GT(least, 0) << name << " " << made.prompt.size();
}

TEST(Ruler, TheAskedWordsAreTheMostFrequentOnes) {
  for (const char* name : {"ruler-cwe", "ruler-fwe"})
    for (const int64_t length : {2000, 8192}) expect_most_frequent(name, make(name, length));
}

// Where there is room for too few words to tell which are more frequent, none is asked for.
TEST(Ruler, ShortCodedTextsHaveTheirAnswersOrAreRefused) {
  int64_t shortest = 0;
  for (int64_t length = 300; length < 1000; length += 10) {
    RulerCase made;
    const auto refusal = message_of<UsageError>([&] { made = make("ruler-fwe", length); });
    if (!refusal.empty()) {
      EXPECT_TRUE(says(refusal, "ruler-fwe needs a text of at least"));
      EXPECT_EQ(shortest, 0) << length;
      continue;
    }
    if (shortest == 0) shortest = length;
    expect_most_frequent("ruler-fwe", made);
  }
  EXPECT_GT(shortest, 300);
  EXPECT_LT(shortest, 700);
}

// As NoLiMa asks for: what a question and its needle have in common is no word.
TEST(Ruler, AssociationsShareNoWord) {
  const auto stems = [](std::string_view text) {
    std::set<std::string> found;
    std::string word;
    for (const char c : std::string(text) + ".") {
      if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
        word += static_cast<char>(std::tolower(c));
        continue;
      }
      if (word.size() >= 4) found.insert(word.substr(0, 4));
      word.clear();
    }
    return found;
  };
  EXPECT_GE(associations().size(), 20U);
  for (const auto& [fact, question] : associations()) {
    EXPECT_NE(fact.find("{}"), std::string_view::npos);
    const auto in_fact = stems(fact);
    for (const auto& stem : stems(question)) EXPECT_FALSE(in_fact.contains(stem)) << question;
  }
}

TEST(Ruler, RecallCountsTheReferencesInAnyCase) {
  const std::vector<std::string> references{"ABC", "1234567"};
  EXPECT_EQ(ruler_recall("it is abc, and 1234567.", references), 1);
  EXPECT_EQ(ruler_recall("it is xAbCx", references), 0.5);
  EXPECT_EQ(ruler_recall("", references), 0);
}

RulerScores scores_of(const RulerOptions& options, const RulerWriter& write) {
  return score_ruler("ruler", bytes(), options, write);
}

TEST(Ruler, ScoresAreMeansOverTheCases) {
  const RulerOptions options{.lengths = {3000, 4000}, .cases = 4, .samples = true};
  int64_t asked = 0;
  const auto scores = scores_of(
      options, [&](std::span<const RulerCase> cases, int64_t new_tokens, const auto& enough) {
        std::vector<std::string> answers;
        for (size_t i = 0; i < cases.size(); ++i) {
          std::string all;
          for (const auto& reference : cases[i].references) all += reference + " ";
          EXPECT_TRUE(enough(i, all));
          EXPECT_FALSE(enough(i, "no"));
          EXPECT_GT(new_tokens, 0);
          answers.push_back(i % 4 == 0 ? "" : all);  // a quarter of the cases is missed
          ++asked;
        }
        return answers;
      });
  EXPECT_EQ(asked, ruler_cases("ruler", options));
  EXPECT_EQ(scores.tasks(), 12U);
  for (const auto& cell : scores.cells) EXPECT_EQ(cell.mean().value, 0.75) << cell.task;
  EXPECT_EQ(scores.at_length(1).value, 0.75);
  EXPECT_LT(scores.at_length(1).low, 0.75);
  const auto json = to_json(scores);
  EXPECT_EQ(json["cells"].size(), 24U);
  EXPECT_EQ(json["cells"][0]["samples"].size(), 4U);
  EXPECT_EQ(json["cells"][0]["samples"][1]["score"], 1);
  EXPECT_EQ(json["average"][0]["score"], 0.75);
  EXPECT_NE(to_text(scores).find("niah-multikey-3"), std::string::npos);
  EXPECT_EQ(to_figure(scores).panels.size(), 1U);
}

TEST(Ruler, TheSameTextsWhateverElseIsAsked) {
  EXPECT_EQ(make("ruler-vt", 4096, 3).prompt, make("ruler-vt", 4096, 3).prompt);
  EXPECT_NE(make("ruler-vt", 4096, 3).prompt, make("ruler-vt", 4096, 4).prompt);
}

TEST(Ruler, RefusesWhatCannotBeAsked) {
  const RulerWriter none = [](std::span<const RulerCase> cases, int64_t, const auto&) {
    return std::vector<std::string>(cases.size());
  };
  const auto refusal = [&](const RulerOptions& options) {
    return message_of<UsageError>([&] { scores_of(options, none); });
  };
  EXPECT_NE(refusal({.lengths = {}}).find("at least one"), std::string::npos);
  EXPECT_NE(refusal({.lengths = {512, 512}}).find("twice"), std::string::npos);
  EXPECT_NE(refusal({.lengths = {64}}).find("64"), std::string::npos);
  EXPECT_TRUE(find_ruler_tasks("ruler-nothing").empty());
  EXPECT_THROW(score_ruler("ruler-vd", bytes(), {}, none), Error);
}

}  // namespace
}  // namespace tempera::eval
