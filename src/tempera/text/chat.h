#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/jinja/template.h"

namespace tempera::text {

struct ChatMessage {
  std::string role;
  std::optional<std::string> content;
  // All else, as tool_calls, name or reasoning_content; a content that is null or a list too.
  nlohmann::ordered_json more = nlohmann::ordered_json::object();

  // An object with a role; `where` names it in messages.
  static ChatMessage from_json(const nlohmann::ordered_json& json, std::string_view where);
};

struct ChatOptions {
  // Ends the text with what stands before an answer of the model.
  bool add_generation_prompt = false;
  // Schemas of the functions that the model may call; null: none.
  nlohmann::ordered_json tools = nullptr;
  // Variables of the template beside the usual ones, such as enable_thinking; an object.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  RenderOptions render = {};
};

// Which texts stand for the special tokens; they become bos_token and the like in the template.
using SpecialTexts = std::vector<std::pair<std::string, std::string>>;

struct ChatText {
  std::string text;
  // What the model has to say: each answer of the assistant with what ends it, in order.
  std::vector<TextSpan> answers;
};

// A model's way to write a conversation as one text.
class ChatTemplate {
 public:
  // `name` stands before messages of errors.
  ChatTemplate(std::string_view source, std::string name, SpecialTexts special = {});

  // The template of a model: of a folder, chat_template.jinja or "chat_template" in
  // tokenizer_config.json, which may be a list of named ones; of a .gguf file, its metadata.
  // Without `which`, the one named "default" is taken. The special tokens come from the same files.
  // Nothing if the model has no template; throws if it has none of that name.
  static std::optional<ChatTemplate> find(const std::filesystem::path& model,
                                          std::string_view which = {});

  std::string render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  // The text with the places of the assistant's answers, for training on these alone. They come
  // from the template's {% generation %} blocks if it has them. Else each answer is found by
  // rendering the messages before it with the generation prompt, and those up to it: the first
  // text has to begin the second one, and that one the whole. Throws where it is not so, as with
  // templates that drop the reasoning of earlier answers or move the system message to the last
  // turn; train on the last answer of such conversations, each by itself.
  ChatText render_with_answers(std::span<const ChatMessage> messages,
                               const ChatOptions& options = {}) const;

  const std::string& source() const { return template_.source(); }

 private:
  Rendered render_all(std::span<const ChatMessage> messages, const ChatOptions& options,
                      bool add_generation_prompt) const;

  std::string name_;
  Template template_;
  SpecialTexts special_;
};

}  // namespace tempera::text
