#include "tempera/text/chat.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/io/gguf.h"

namespace tempera::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kChatMl =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

std::vector<ChatMessage> conversation() {
  return {{"user", "a"}, {"assistant", "bä"}, {"user", "c"}, {"assistant", "d"}};
}

std::vector<std::string> parts(const ChatText& chat) {
  std::vector<std::string> texts;
  for (const auto& span : chat.answers)
    texts.push_back(chat.text.substr(span.begin, span.end - span.begin));
  return texts;
}

TEST(Chat, RendersMessagesWithSpecialTokens) {
  const ChatTemplate chat(kChatMl, "chat", {{"eos_token", "</s>"}});
  EXPECT_EQ(chat.render(conversation()),
            "<|user|>a</s>\n<|assistant|>bä</s>\n<|user|>c</s>\n<|assistant|>d</s>\n");
  EXPECT_EQ(chat.render(std::vector<ChatMessage>{{"user", "a"}}, {.add_generation_prompt = true}),
            "<|user|>a</s>\n<|assistant|>");
}

TEST(Chat, PassesToolsAndVariables) {
  const ChatTemplate chat(
      "{{ tools | tojson if tools is not none else 'none' }}{{ think }}{{ documents is none }}",
      "chat");
  EXPECT_EQ(chat.render({}), "noneTrue");
  ChatOptions options;
  options.tools = Json::parse(R"([{"z": 1, "a": 2}])");
  options.variables["think"] = true;
  EXPECT_EQ(chat.render({}, options), R"([{"z": 1, "a": 2}]TrueTrue)");
}

TEST(Chat, ReadsMessagesFromJson) {
  const auto message = ChatMessage::from_json(
      Json::parse(R"({"role": "assistant", "content": null, "reasoning": "r"})"), "here");
  const ChatTemplate chat("{{ messages[0] }}", "chat");
  EXPECT_EQ(chat.render(std::vector{message}),
            "{'thinking': 'r', 'role': 'assistant', 'content': None, 'reasoning': 'r', "
            "'reasoning_content': 'r'}");
  EXPECT_NE(message_of([] {
              ChatMessage::from_json(Json::parse(R"({"content": "x"})"), "here");
            }).find("here: a message"),
            std::string::npos);
}

TEST(Chat, FindsTheAnswers) {
  const ChatTemplate chat(kChatMl, "chat", {{"eos_token", "</s>"}});
  const auto rendered = chat.render_with_answers(conversation());
  EXPECT_EQ(parts(rendered), (std::vector<std::string>{"bä</s>\n", "d</s>\n"}));
}

TEST(Chat, TakesTheAnswersThatTheTemplateMarks) {
  const ChatTemplate chat(
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}."
      "{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}{% endfor %}",
      "chat");
  const auto rendered = chat.render_with_answers(conversation());
  EXPECT_EQ(rendered.text, "U:aA:bä.U:cA:d.");
  EXPECT_EQ(parts(rendered), (std::vector<std::string>{"bä.", "d."}));
}

TEST(Chat, SaysWhereAnswersCannotBeTold) {
  // Writes the system message into the last turn, as some models have it.
  const ChatTemplate moving(
      "{% for m in messages %}{{ '!' if loop.last }}{{ m.content }}|{% endfor %}", "chat");
  EXPECT_NE(message_of([&] { moving.render_with_answers(conversation()); }).find("message 2"),
            std::string::npos);
}

TEST(Chat, FindsTheTemplateOfAFolder) {
  const TempFolder folder;
  EXPECT_FALSE(ChatTemplate::find(folder.path()));
  const auto config = folder.path() / "tokenizer_config.json";
  write_file(config, R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null,
                         "chat_template": "{{ bos_token }}one{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(ChatTemplate::find(folder.path())->render({}), "<s>one</s>");
  write_file(config, R"({"chat_template": [{"name": "default", "template": "two"},
                                           {"name": "tool_use", "template": "three"}]})");
  EXPECT_EQ(ChatTemplate::find(folder.path())->render({}), "two");
  EXPECT_EQ(ChatTemplate::find(folder.path(), "tool_use")->render({}), "three");
  EXPECT_NE(message_of([&] {
              ChatTemplate::find(folder.path(), "tool_us");
            }).find("default, tool_use; did you mean 'tool_use'?"),
            std::string::npos);
  EXPECT_NE(message_of([&] { ChatTemplate::find(folder.path(), "../x"); }).find("not the name"),
            std::string::npos);
  write_file(folder.path() / "chat_template.jinja", "four\n");
  EXPECT_EQ(ChatTemplate::find(folder.path())->render({}), "four");
}

TEST(Chat, FindsTheTemplateOfAGgufFile) {
  const TempFolder folder;
  const auto path = folder.path() / "model.gguf";
  io::GgufMetadata metadata;
  io::write_gguf(path, metadata, {});
  EXPECT_FALSE(ChatTemplate::find(path));
  metadata.add("tokenizer.ggml.tokens", io::GgufArray(std::vector<std::string>{"<s>", "</s>"}));
  metadata.add("tokenizer.ggml.bos_token_id", uint32_t{0});
  metadata.add("tokenizer.ggml.eos_token_id", uint32_t{7});  // no such piece
  metadata.add("tokenizer.chat_template", std::string("{{ bos_token }}one{{ eos_token }}"));
  metadata.add("tokenizer.chat_template.tool_use", std::string("two"));
  io::write_gguf(path, metadata, {});
  EXPECT_EQ(ChatTemplate::find(path)->render({}), "<s>one");
  EXPECT_EQ(ChatTemplate::find(path, "tool_use")->render({}), "two");
  EXPECT_NE(message_of([&] { ChatTemplate::find(path, "rag"); }).find("no chat template 'rag'"),
            std::string::npos);
}

TEST(Chat, WritesAsSmolLm2Does) {
  const char* set = std::getenv("TEMPERA_DATA");
  const char* home = std::getenv("HOME");
  const std::filesystem::path data =
      set ? set : std::filesystem::path(home ? home : "") / ".cache" / "tempera-data";
  const auto path = data / "models" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto rendered = ChatTemplate::find(path)->render_with_answers(conversation());
  EXPECT_TRUE(rendered.text.starts_with("<|im_start|>system\nYou are a helpful AI assistant"));
  EXPECT_TRUE(rendered.text.ends_with(
      "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n"));
  EXPECT_EQ(parts(rendered), (std::vector<std::string>{"bä<|im_end|>\n", "d<|im_end|>\n"}));
}

}  // namespace
}  // namespace tempera::text
