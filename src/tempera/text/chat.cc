#include "tempera/text/chat.h"

#include <array>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/suggest.h"
#include "tempera/io/gguf.h"
#include "tempera/io/json.h"

namespace tempera::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLargestConfig = uint64_t{1} << 26;
constexpr std::array<const char*, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

// Reasoning has several names; a template may ask for either of two.
Json with_reasoning(Json message) {
  for (const char* name : kReasoning) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    const Json reasoning = *found;
    Json all = Json::object();
    all["thinking"] = reasoning;
    for (const auto& [key, value] : message.items()) all[key] = value;
    all["reasoning_content"] = reasoning;
    return all;
  }
  return message;
}

Json to_json(const ChatMessage& message) {
  Json json = Json::object();
  json["role"] = message.role;
  if (message.content) json["content"] = *message.content;
  for (const auto& [key, value] : message.more.items()) json[key] = value;
  return with_reasoning(std::move(json));
}

// A token is a text, or an object that holds it.
std::optional<std::string> token_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

SpecialTexts special_texts(const nlohmann::json& config) {
  SpecialTexts special;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (auto text = token_text(*found)) special.emplace_back(name, std::move(*text));
  }
  return special;
}

// The template of that name in "chat_template", which is a text or a list of names and texts.
std::optional<std::string> pick_template(const nlohmann::json& config, std::string_view which,
                                         const std::string& where) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string() && (which.empty() || which == "default")) return found->get<std::string>();
  std::vector<std::string> names;
  if (found->is_string()) names.push_back("default");
  const std::string wanted(which.empty() ? "default" : which);
  if (found->is_array())
    for (const auto& entry : *found) {
      TEMPERA_CHECK(entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                        entry.contains("template") && entry["template"].is_string(),
                    where,
                    ": \"chat_template\" is a text, or a list of objects with \"name\" and "
                    "\"template\"");
      names.push_back(entry["name"].get<std::string>());
      if (names.back() == wanted) return entry["template"].get<std::string>();
    }
  std::string known;
  for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
  throw Error(concat(where, ": no chat template '", wanted, "'; there are: ",
                     known.empty() ? "none" : known, did_you_mean(wanted, names)));
}

// In a GGUF file, templates are metadata and special tokens are ids of pieces.
std::optional<ChatTemplate> find_in_gguf(const std::filesystem::path& path,
                                         std::string_view which) {
  const io::Gguf file(path);
  const io::GgufMetadata& metadata = file.metadata();
  const bool standard = which.empty() || which == "default";
  const std::string key =
      concat("tokenizer.chat_template", standard ? "" : ".", standard ? "" : which);
  if (metadata.find(key) == nullptr) {
    TEMPERA_CHECK(which.empty(), "'", path.string(), "' has no chat template '", which, "'");
    return std::nullopt;
  }
  const auto pieces = metadata.get_or<std::vector<std::string>>("tokenizer.ggml.tokens",
                                                                std::vector<std::string>());
  SpecialTexts special;
  for (const auto& [name, id_key] :
       {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
        std::pair("unk_token", "unknown_token_id"), std::pair("pad_token", "padding_token_id")}) {
    const int64_t id = metadata.get_or<int64_t>(concat("tokenizer.ggml.", id_key), -1);
    if (id >= 0 && id < static_cast<int64_t>(pieces.size()))
      special.emplace_back(name, pieces[static_cast<size_t>(id)]);
  }
  return ChatTemplate(metadata.get<std::string>(key), concat(path.string(), ", ", key),
                      std::move(special));
}

std::optional<ChatTemplate> find_in_folder(const std::filesystem::path& folder,
                                           std::string_view which) {
  const auto config_path = folder / "tokenizer_config.json";
  nlohmann::json config = nlohmann::json::object();
  if (std::filesystem::exists(config_path))
    config = io::parse_json(read_file(config_path, kLargestConfig), config_path.string());
  TEMPERA_CHECK(config.is_object(), config_path.string(), ": not a JSON object");
  SpecialTexts special = special_texts(config);

  const bool standard = which.empty() || which == "default";
  // Files of their own stand above the configuration, as the library that writes them has it.
  const auto file = standard ? folder / "chat_template.jinja"
                             : folder / "additional_chat_templates" / concat(which, ".jinja");
  if (std::filesystem::exists(file))
    return ChatTemplate(read_file(file, TemplateLimits{}.source_bytes), file.string(),
                        std::move(special));
  auto source = pick_template(config, which, config_path.string());
  if (!source) {
    TEMPERA_CHECK(which.empty(), "'", folder.string(), "' has no chat template '", which, "'");
    return std::nullopt;
  }
  return ChatTemplate(*source, concat(config_path.string(), ", chat_template"), std::move(special));
}

}  // namespace

ChatMessage ChatMessage::from_json(const Json& json, std::string_view where) {
  TEMPERA_CHECK(json.is_object() && json.contains("role") && json["role"].is_string(), where,
                ": a message is an object with a \"role\", a text");
  ChatMessage message;
  for (const auto& [key, value] : json.items()) {
    if (key == "role")
      message.role = value.get<std::string>();
    else if (key == "content" && value.is_string())
      message.content = value.get<std::string>();
    else
      message.more[key] = value;
  }
  return message;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string name, SpecialTexts special)
    : name_(name), template_(source, std::move(name)), special_(std::move(special)) {}

std::optional<ChatTemplate> ChatTemplate::find(const std::filesystem::path& model,
                                               std::string_view which) {
  TEMPERA_CHECK(which.find_first_of("/\\") == which.npos, "'", which,
                "' is not the name of a chat template");
  return model.extension() == ".gguf" ? find_in_gguf(model, which) : find_in_folder(model, which);
}

Rendered ChatTemplate::render_all(std::span<const ChatMessage> messages, const ChatOptions& options,
                                  bool add_generation_prompt) const {
  TEMPERA_CHECK(options.variables.is_object(), name_, ": the variables are an object");
  TEMPERA_CHECK(options.tools.is_null() || options.tools.is_array(), name_,
                ": the tools are a list of schemas");
  Json variables = Json::object();
  for (const auto& [name, text] : special_) variables[name] = text;
  variables["messages"] = Json::array();
  for (const ChatMessage& message : messages) variables["messages"].push_back(to_json(message));
  variables["tools"] = options.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  for (const auto& [name, value] : options.variables.items()) variables[name] = value;
  return template_.render(variables, options.render);
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
  return render_all(messages, options, options.add_generation_prompt).text;
}

ChatText ChatTemplate::render_with_answers(std::span<const ChatMessage> messages,
                                           const ChatOptions& options) const {
  Rendered whole = render_all(messages, options, options.add_generation_prompt);
  ChatText result{.text = std::move(whole.text), .answers = std::move(whole.generated)};
  if (!result.answers.empty()) return result;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const std::string before = render_all(messages.first(i), options, true).text;
    const std::string after = render_all(messages.first(i + 1), options, false).text;
    TEMPERA_CHECK(after.starts_with(before) && result.text.starts_with(after), name_,
                  ": where the answer in message ", i + 1,
                  " stands cannot be told: the template writes earlier turns in another way once "
                  "later ones are there; give conversations that end with the answer to learn");
    result.answers.push_back({before.size(), after.size()});
  }
  return result;
}

}  // namespace tempera::text
