#include "tempera/data/chat_dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tempera/base/error.h"
#include "tempera/base/files.h"

namespace tempera::data {
namespace {

constexpr const char* kTemplate =
    "{% for message in messages %}[{{ message.role }}]{{ message.content }};{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

class ChatDatasetTest : public ::testing::Test {
 protected:
  std::vector<Conversation> read(const std::string& lines) {
    write_file(folder_.path() / "chat.jsonl", lines);
    const std::filesystem::path files[] = {folder_.path() / "chat.jsonl"};
    return read_conversations(files, text::ChatTemplate(kTemplate, "test"), tokenizer_);
  }
  std::string answers(const Conversation& conversation) {
    std::vector<int32_t> kept;
    for (size_t i = 0; i < conversation.tokens.size(); ++i)
      if (conversation.answer[i]) kept.push_back(conversation.tokens[i]);
    std::string text;
    tokenizer_.decode(kept, text);
    return text;
  }
  static std::string line(const std::string& question, const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": ")" + question +
           R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
  }

  TempFolder folder_;
  text::ByteTokenizer tokenizer_;
};

TEST_F(ChatDatasetTest, OnlyWhatTheAssistantSaysIsAnAnswer) {
  const auto conversations = read(line("one?", "yes") + "\n" + line("two?", "no"));
  ASSERT_EQ(conversations.size(), 2U);
  EXPECT_EQ(answers(conversations[0]), "yes;");
  EXPECT_EQ(answers(conversations[1]), "no;");
}

TEST_F(ChatDatasetTest, TargetsAreTheNextTokensOfAnswersAndNothingElse) {
  const auto conversations = read(line("a", "bc"));
  const ChatDataset dataset("test", conversations, tokenizer_.vocabulary(),
                            {.length = 64, .seed = 0, .held_out = 0});
  const Batch batch = dataset.train(whole_batch(0, 1));
  std::string learned;
  for (size_t i = 0; i < batch.targets.size(); ++i)
    if (batch.targets[i] != kIgnored) {
      learned += static_cast<char>(batch.targets[i]);
      EXPECT_EQ(batch.targets[i], batch.tokens[i + 1]);
    }
  EXPECT_EQ(learned, "bc;");
  EXPECT_EQ(
      std::accumulate(batch.document_lengths.begin(), batch.document_lengths.end(), int64_t{0}),
      64);
}

TEST_F(ChatDatasetTest, ARowHasWholeConversationsAndAnEpochAllOfThem) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += line("q" + std::to_string(i), std::string(static_cast<size_t>(5 + i % 7), 'x'));
  const auto conversations = read(lines);
  const ChatDataset dataset("test", conversations, tokenizer_.vocabulary(),
                            {.length = 100, .seed = 3, .held_out = 0.2});
  ASSERT_EQ(dataset.held_out_sets().size(), 1U);
  std::multiset<std::string> seen;
  const auto note = [&](const Batch& batch) {
    for (int64_t r = 0; r < batch.rows; ++r) {
      int64_t at = r * batch.length;
      for (int64_t d = 0; d < batch.documents; ++d) {
        const int64_t size = batch.document_lengths[static_cast<size_t>(r * batch.documents + d)];
        std::vector<int32_t> ids(batch.tokens.begin() + at, batch.tokens.begin() + at + size);
        at += size;
        std::string text;
        tokenizer_.decode(ids, text);
        if (text.starts_with("[user]")) seen.insert(text);
      }
      EXPECT_EQ(at, (r + 1) * batch.length);
    }
  };
  const int64_t held = dataset.held_out_sets()[0].rows;
  note(dataset.held_out(0, 0, held));
  const size_t of_held_out = seen.size();
  EXPECT_EQ(of_held_out, 8U);
  // Single rows, as micro-batches would ask for them, until the first epoch is over.
  for (int64_t row = 0; seen.size() < 40 && row < 40; ++row)
    note(dataset.train({.step = 0, .batch_rows = 40, .first_row = row, .rows = 1}));
  EXPECT_EQ(seen.size(), 40U);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 40U);
}

TEST_F(ChatDatasetTest, TheSameConversationsAreHeldOutAtEveryLength) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += line("q", std::string(static_cast<size_t>(1 + i), 'x'));
  const auto conversations = read(lines);
  std::set<std::string> trained, held_out;
  const auto note = [&](const Batch& batch, std::set<std::string>& into) {
    for (size_t row = 0; row < static_cast<size_t>(batch.rows); ++row) {
      std::string answers;  // of one conversation; its number of letters tells which
      for (int64_t t = 0; t < batch.length; ++t) {
        const int64_t target =
            batch.targets[row * static_cast<size_t>(batch.length) + static_cast<size_t>(t)];
        if (target == 'x') answers += 'x';
        if (target != 'x' && !answers.empty()) {
          into.insert(answers);
          answers.clear();
        }
      }
    }
  };
  for (const int64_t length : {80, 200, 1000}) {
    const ChatDataset dataset("test", conversations, tokenizer_.vocabulary(),
                              {.length = length, .seed = 3, .held_out = 0.2});
    for (int64_t step = 0; step < 60; ++step)
      note(dataset.train(whole_batch(static_cast<uint64_t>(step), 1)), trained);
    note(dataset.held_out(0, 0, dataset.held_out_sets()[0].rows), held_out);
  }
  EXPECT_EQ(trained.size(), 40U);
  EXPECT_EQ(held_out.size(), 10U);
  for (const auto& answer : held_out) EXPECT_FALSE(trained.contains(answer)) << answer.size();
}

TEST_F(ChatDatasetTest, AConversationLongerThanARowIsCut) {
  const ChatDataset dataset("test", read(line("q", std::string(500, 'x'))), tokenizer_.vocabulary(),
                            {.length = 32, .seed = 0, .held_out = 0});
  const Batch batch = dataset.train(whole_batch(0, 1));
  EXPECT_EQ(batch.tokens.size(), 32U);
  EXPECT_EQ(batch.document_lengths[0], 32);
}

TEST_F(ChatDatasetTest, BadLinesAreNamed) {
  const auto message = [&](const std::string& lines) -> std::string {
    try {
      read(lines);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(line("a", "b") + "{\"text\": \"x\"}\n").find("line 2"), std::string::npos);
  EXPECT_NE(message("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n").find("line 1"),
            std::string::npos);
  EXPECT_NE(message(line("a", "b") + line("a", "b") + "{\n").find("line 3"), std::string::npos);
}

}  // namespace
}  // namespace tempera::data
