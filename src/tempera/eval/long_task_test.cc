#include "tempera/eval/long_task.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/eval/testing_text.h"

namespace tempera::eval {
namespace {

class LongTaskTest : public testing::Test {
 protected:
  LongCase make(const std::string& name, double depth = 0.5, size_t index = 0) {
    const LongTask& task = *find_long_task(name);
    const auto source = open_source(task, options_, bytes_);
    return task.make(source, {.length = length_,
                              .depth = depth,
                              .index = index,
                              .group = 3,
                              .random = case_stream(task, options_, {length_, depth, index})});
  }
  void write(const std::string& lines) {
    options_.file = (folder_.path() / "examples.jsonl").string();
    std::ofstream(options_.file) << lines;
  }

  TempFolder folder_;
  text::ByteTokenizer bytes_;
  LongTaskOptions options_;
  int64_t length_ = 700;
};

// The asked-for text stands in the context exactly as the answer continues it.
void expect_answer_in_context(const Request& request) {
  const auto context = text_of(request.context), answer = text_of(request.continuation);
  const auto line = context.substr(context.rfind("? ") + 2);
  EXPECT_NE(context.find(line + answer), std::string::npos) << context << "|" << answer;
}

TEST_F(LongTaskTest, EveryNeedleIsInTheText) {
  for (const char* name : {"needle-keys", "needle-queries"}) {
    const auto asked = make(name);
    EXPECT_EQ(asked.rule, HitRule::kEach);
    EXPECT_EQ(asked.requests.size(), std::string(name) == "needle-keys" ? 1U : 4U);
    int64_t longest = 0;
    for (const auto& request : asked.requests) {
      expect_answer_in_context(request);
      EXPECT_EQ(request.group, 3U);
      longest = std::max(
          longest, static_cast<int64_t>(request.context.size() + request.continuation.size()));
    }
    EXPECT_EQ(longest, length_) << name;
  }
}

// Neither what is hidden nor the text around it tells a case what another one found.
TEST_F(LongTaskTest, NoTwoCasesShareTheirText) {
  for (const char* name : {"passkey", "needle-keys", "key-value"}) {
    std::set<std::string> answers, texts;
    for (const double depth : {0.0, 0.25, 0.5, 0.75, 1.0})
      for (size_t number = 0; number < 4; ++number) {
        const auto request = make(name, depth, number).requests.at(0);
        answers.insert(text_of(request.continuation));
        texts.insert(text_of(request.context).substr(100, 100));
        EXPECT_EQ(make(name, depth, number).requests.at(0).context, request.context);
      }
    EXPECT_EQ(answers.size(), 20U) << name;
    EXPECT_GE(texts.size(), 19U) << name << ": but for the needle at the begin, by the hay";
  }
}

TEST_F(LongTaskTest, ValuesAreAskedInTheirOrder) {
  const auto asked = make("needle-values");
  const auto context = text_of(asked.requests.at(0).context);
  std::string rest = text_of(asked.requests[0].continuation);
  size_t last = 0;
  int count = 0;
  for (size_t at = 0; at != std::string::npos; at = rest.find(", ", at + 1), ++count) {
    const auto number = rest.substr(at == 0 ? 0 : at + 2, 5);
    const size_t found = context.find(" is " + number + ".");
    ASSERT_NE(found, std::string::npos) << number;
    EXPECT_GT(found, last);
    last = found;
  }
  EXPECT_EQ(count, 4);
}

TEST_F(LongTaskTest, KeyValueStandsAtItsDepth) {
  for (const double depth : {0.0, 0.5, 1.0}) {
    const auto request = make("key-value", depth).requests.at(0);
    const auto context = text_of(request.context), answer = text_of(request.continuation);
    const auto line = context.substr(context.rfind('\n'));
    const size_t at = context.find(line + answer + ",");
    ASSERT_NE(at, std::string::npos) << context;
    const size_t begin = context.find('{') + 1, end = context.find("\n}");
    const auto share = static_cast<double>(at - begin) / static_cast<double>(end - begin);
    EXPECT_NEAR(share, depth, 0.07);
    EXPECT_LE(static_cast<int64_t>(context.size() + answer.size()), length_);
    EXPECT_GE(static_cast<int64_t>(context.size() + answer.size()), length_ - 30);
  }
}

TEST_F(LongTaskTest, ClassifiesFromOtherExamples) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += R"({"text": "number )" + std::to_string(i) + R"(", "label": ")" +
             (i % 3 == 0 ? "three" : "other") + "\"}\n";
  write(lines);
  const auto asked = make("classify", 0, 4);
  EXPECT_EQ(asked.rule, HitRule::kBest);
  ASSERT_EQ(asked.requests.size(), 2U);
  EXPECT_EQ(text_of(asked.requests[0].continuation), " three");
  EXPECT_EQ(asked.gold, 1U);  // 4 is none of them
  const auto context = text_of(asked.requests[0].context);
  EXPECT_TRUE(context.ends_with("\nText: number 4\nLabel:")) << context;
  EXPECT_EQ(context.find("number 4\nLabel: "), std::string::npos) << "the answer is given away";
  EXPECT_NE(context.find("\nLabel: three\nText: number "), std::string::npos) << context;
  EXPECT_NE(context.find("\nLabel: other\nText: number "), std::string::npos) << context;
  EXPECT_GT(context.size(), 600U);
}

TEST_F(LongTaskTest, PassagesAroundTheRightOne) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += R"({"question": "Where is )" + std::to_string(i) + R"(?", "answers": ["place )" +
             std::to_string(i) + R"(.", "nowhere"], "passages": [)" + R"("A stone.", "Thing )" +
             std::to_string(i) + " is at place " + std::to_string(i) + R"(."], "gold": 1})" + "\n";
  write(lines);
  for (const double depth : {0.0, 1.0}) {
    const auto asked = make("qa", depth, 7);
    EXPECT_EQ(asked.rule, HitRule::kAny);
    ASSERT_EQ(asked.requests.size(), 2U);
    const auto context = text_of(asked.requests[0].context);
    EXPECT_TRUE(context.ends_with("\nQuestion: Where is 7?\nAnswer:")) << context;
    const size_t at = context.find("Thing 7 is at place 7.");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(at < context.size() / 2, depth == 0);
    EXPECT_EQ(context.find("place 7.", at + 22), std::string::npos);

    const auto ranked = make("rerank", depth, 7);
    const auto list = text_of(ranked.requests.at(0).context);
    const auto number = "\n[" + std::to_string(ranked.gold + 1) + "] Thing 7 is";
    EXPECT_NE(list.find(number), std::string::npos) << list;
    EXPECT_EQ(text_of(ranked.requests.at(ranked.gold).continuation),
              " [" + std::to_string(ranked.gold + 1) + "]");
    EXPECT_GT(ranked.requests.size(), 15U);
  }
}

TEST_F(LongTaskTest, ALongDocumentLosesItsMiddle) {
  write(R"({"question": "Who?", "answers": ["Ann"], "document": ")" + std::string(400, 'a') +
        std::string(400, 'b') + "\"}");
  const auto request = make("document-qa").requests.at(0);
  const auto text = text_of(request.context);
  EXPECT_EQ(static_cast<int64_t>(text.size() + request.continuation.size()), length_);
  const auto as = std::ranges::count(text, 'a'), bs = std::ranges::count(text, 'b');
  EXPECT_NEAR(static_cast<double>(as), static_cast<double>(bs), 12);
}

TEST_F(LongTaskTest, RefusesWhatCannotBeAsked) {
  write("{\"question\": \"q\", \"answers\": [], \"passages\": [\"p\"]}");
  EXPECT_THROW(make("qa"), Error);
  write("{\"question\": \"q\", \"passages\": [\"p\"]}");
  EXPECT_THROW(make("qa"), Error);
  write("{\"question\": \"q\", \"answers\": [\"a\"], \"passages\": []}");
  EXPECT_THROW(make("rerank"), Error);
  length_ = 20;
  EXPECT_THROW(make("key-value"), UsageError);
  EXPECT_THROW(make("needle-keys"), UsageError);
  EXPECT_THROW(check_long_options(*find_long_task("passkey"), {.depths = {}}), UsageError);
  EXPECT_NO_THROW(check_long_options(*find_long_task("classify"), {.depths = {}}));
  EXPECT_THROW(check_long_options(*find_long_task("passkey"), {.depths = {0.5, 0, 0.5}}),
               UsageError);
  EXPECT_THROW(check_long_options(*find_long_task("passkey"), {.lengths = {700, 700}}), UsageError);
  EXPECT_THROW(check_long_options(*find_long_task("needle-keys"), {.needles = 200}), UsageError);
}

}  // namespace
}  // namespace tempera::eval
