#include "tempera/eval/choice_task.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tempera/base/files.h"
#include "tempera/eval/choices.h"

namespace tempera::eval {
namespace {

class ChoiceTaskTest : public testing::Test {
 protected:
  std::vector<ChoiceExample> read(const std::string& task, const std::string& lines,
                                  int64_t limit = 0) {
    std::ofstream(file()) << lines;
    return read_examples(*find_choice_task(task), file(), limit);
  }
  std::string refusal(const std::string& task, const std::string& lines) {
    try {
      read(task, lines);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path file() const { return folder_.path() / "examples.jsonl"; }

  TempFolder folder_;
};

struct Case {
  const char* task;
  const char* line;
  std::vector<std::string> contexts, continuations;
  size_t gold;
};

// Texts as lm-eval 0.4.13 gives them to a model.
TEST_F(ChoiceTaskTest, AsksWhatLmEvalAsks) {
  const std::vector<Case> cases = {
      {"piqa",
       R"({"goal": "Boil an egg", "sol1": "In ice.", "sol2": "In water.", "label": 1})",
       {"Question: Boil an egg\nAnswer:", "Question: Boil an egg\nAnswer:"},
       {" In ice.", " In water."},
       1},
      {"piqa",
       R"({"query": "Question: Boil an egg\n", "choices": ["In ice.", "In water."], "gold": 1})",
       {"Question: Boil an egg\nAnswer:", "Question: Boil an egg\nAnswer:"},
       {" In ice.", " In water."},
       1},
      {"arc_easy",
       R"({"question": "What is wet?", "choices": {"text": ["Sand", "Rain"], "label": ["A", "B"]},
           "answerKey": "B"})",
       {"Question: What is wet?\nAnswer:", "Question: What is wet?\nAnswer:"},
       {" Sand", " Rain"},
       1},
      {"openbookqa",
       R"({"question_stem": "Frogs eat", "choices": {"text": ["flies", "cars"], "label": ["1", "2"]},
           "answerKey": " 1"})",
       {"Frogs eat", "Frogs eat"},
       {" flies", " cars"},
       0},
      {"boolq",
       R"({"passage": "Tea is hot.", "question": "is tea hot", "answer": true})",
       {"Tea is hot.\nQuestion: is tea hot?\nAnswer:",
        "Tea is hot.\nQuestion: is tea hot?\nAnswer:"},
       {" no", " yes"},
       1},
      {"boolq",
       R"({"query": "Passage: Tea is hot.\nQuestion: is tea hot?", "choices": ["no", "yes"], "gold": 1})",
       {"Tea is hot.\nQuestion: is tea hot?\nAnswer:",
        "Tea is hot.\nQuestion: is tea hot?\nAnswer:"},
       {" no", " yes"},
       1},
      {"copa",
       R"({"premise": "It rained. ", "question": "effect", "choice1": "It dried.", "choice2": "We got wet.",
           "label": 1})",
       {"It rained therefore", "It rained therefore"},
       {"  it dried.", "  we got wet."},
       1},
      {"winogrande",
       R"({"sentence": "Ann fed Bea because _  was hungry.", "option1": "Ann", "option2": "Bea", "answer": "2"})",
       {"Ann fed Bea because Ann", "Ann fed Bea because Bea"},
       {" was hungry.", " was hungry."},
       1},
      {"hellaswag",
       R"({"activity_label": "Cooking", "ctx_a": "A pan. [header] x", "ctx_b": "the MAN",
           "endings": ["stirs [substeps] it.", "sleeps [title] now."], "label": "0"})",
       {"Cooking: A pan. x The man", "Cooking: A pan. x The man"},
       {" stirs it.", " sleeps. now."},
       0},
      {"lambada", R"({"text": "one two three"})", {"one two"}, {" three"}, 0},
  };
  for (const auto& [task, line, contexts, continuations, gold] : cases) {
    std::string flat = line;
    std::erase(flat, '\n');
    const auto example = read(task, flat).at(0);
    EXPECT_EQ(example.contexts, contexts) << task;
    EXPECT_EQ(example.continuations, continuations) << task;
    EXPECT_EQ(example.gold, gold) << task;
  }
}

TEST_F(ChoiceTaskTest, SaysWhichLineLacksWhat) {
  const std::string good = R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 0})";
  const auto missing = refusal("piqa", good + "\n\n" + R"({"goal": "a", "sol1": "b", "label": 0})");
  EXPECT_NE(missing.find("line 3"), std::string::npos) << missing;
  EXPECT_NE(missing.find("no sol2"), std::string::npos) << missing;
  EXPECT_NE(refusal("piqa", good + "\n{").find("line 2"), std::string::npos);
  EXPECT_NE(refusal("piqa", "[1]").find("array"), std::string::npos);
  EXPECT_NE(refusal("piqa", R"({"goal": 1, "sol1": "b", "sol2": "c", "label": 0})").find("number"),
            std::string::npos);
  EXPECT_NE(refusal("piqa", R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 2})").find("label"),
            std::string::npos);
  EXPECT_NE(refusal("arc_easy", R"({"question": "q", "choices": {"text": ["a"], "label": ["A"]},
            "answerKey": "C"})")
                .find("line 1"),
            std::string::npos);
  EXPECT_NE(refusal("winogrande",
                    R"({"sentence": "no gap", "option1": "", "option2": "", "answer": "1"})")
                .find("gap"),
            std::string::npos);
  EXPECT_NE(refusal("lambada", R"({"text": "word"})").find("blank"), std::string::npos);
  EXPECT_NE(refusal("piqa", "\n \n").find("no example"), std::string::npos);
}

TEST_F(ChoiceTaskTest, StopsAtTheLimit) {
  EXPECT_EQ(read("lambada", "{\"text\": \"a b\"}\n{\"text\": \"c d\"}\nbroken", 2).size(), 2U);
}

TEST_F(ChoiceTaskTest, CleansWhatHellaswagTookFromPages) {
  EXPECT_EQ(clean_hellaswag(" a [title] b [step] c  "), "a. b c");
  EXPECT_EQ(clean_hellaswag("x [open"), "x [open");
  EXPECT_EQ(clean_hellaswag("[a [b] c]"), " c]");
}

ChoiceExample two(size_t gold, const std::string& a, const std::string& b) {
  return {{"q", "q"},
          {" " + a, " " + b},
          {static_cast<int64_t>(a.size()), static_cast<int64_t>(b.size())},
          gold};
}

TEST(Choices, AccuracyByLikelihoodAndByLikelihoodPerCharacter) {
  const std::vector<ChoiceExample> examples = {two(0, "ab", "abcdefgh"), two(1, "ab", "abcdefgh")};
  // The long choice is less likely as a whole and likelier by the character.
  const std::vector<Likelihood> likelihoods = {{-4, false}, {-8, false}, {-4, true}, {-8, false}};
  const auto scores = summarize(*find_choice_task("piqa"), examples, likelihoods);
  ASSERT_EQ(scores.metrics.size(), 2U);
  EXPECT_EQ(scores.metrics[0].examples, (std::vector<double>{1, 0}));
  EXPECT_EQ(scores.metrics[1].examples, (std::vector<double>{0, 1}));
  const auto json = to_json(scores, true);
  EXPECT_DOUBLE_EQ(json["results"]["piqa"]["acc,none"], 0.5);
  EXPECT_DOUBLE_EQ(json["results"]["piqa"]["acc_stderr,none"], 0.5);  // sqrt(0.5) / sqrt(2)
  EXPECT_EQ(json["samples"]["piqa"][1]["filtered_resps"][0][0], -4.0);
  EXPECT_EQ(json["samples"]["piqa"][1]["acc_norm"], 1.0);
  EXPECT_EQ(json["samples"]["piqa"][0]["arguments"][1][1], " abcdefgh");
  EXPECT_FALSE(to_json(scores, false).contains("samples"));
  EXPECT_EQ(summarize(*find_choice_task("boolq"), examples, likelihoods).metrics.size(), 1U);
}

TEST(Choices, AGuessIsRightWhereGreedyDecodingWritesIt) {
  const std::vector<ChoiceExample> examples = {{{"a"}, {" b"}, {1}, 0}, {{"a"}, {" b"}, {1}, 0}};
  const std::vector<Likelihood> likelihoods = {{-1, true}, {-3, false}};
  const auto scores = summarize(*find_choice_task("lambada"), examples, likelihoods);
  EXPECT_DOUBLE_EQ(scores.metrics[0].estimate.value, 0.5);
  EXPECT_EQ(scores.metrics[1].name, "perplexity");
  EXPECT_NEAR(scores.metrics[1].estimate.value, std::exp(2.0), 1e-12);
}

}  // namespace
}  // namespace tempera::eval
