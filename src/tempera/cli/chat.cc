#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/cli/model.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/generate/text.h"
#include "tempera/models/device.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {
namespace {

struct ChatSettings {
  std::string model;
  std::optional<std::string> system, prompt;
  generate::TextOptions text;
  models::ComputeOptions compute;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a model with a chat template: a folder or a .gguf file");
    options.section(config::Section::kText);
    options.option("system", system, "system message");
    options.option("prompt", prompt, "one message; not given: a conversation on standard input");
    text.declare(options);
    compute.declare(options);
    config::cache_dtype_option(options, compute.cache_dtype);
    config::json_option(options, json);
  }
};

class Chat {
 public:
  Chat(const ChatSettings& settings, const models::LoadedModel& loaded)
      : opened_(open_model(loaded, settings.compute.device)),
        template_(models::chat_template_of(loaded)),
        options_(settings.text),
        streams_(!settings.json) {
    TEMPERA_CHECK(template_, loaded.path.string(),
                  " has no chat template; `tempera generate` continues a text without one");
    options_.tokens.stop_tokens = opened_.end_tokens;
    options_.encode = {.add_special = false, .parse_special = true};
    if (settings.system) add("system", *settings.system);
  }

  generate::TextAnswer ask(const std::string& question) {
    add("user", question);
    const std::string prompt = template_->render(messages_, {.add_generation_prompt = true});
    generate::TextCallback stream;
    if (streams_) stream = [](size_t, std::string_view piece) { std::cout << piece << std::flush; };
    auto answer = generate::generate_text(*opened_.model, tokenizer_of(opened_), {prompt}, options_,
                                          stream)[0];
    if (streams_) std::cout << "\n";
    add("assistant", answer.text);
    return answer;
  }

 private:
  void add(const char* role, const std::string& content) {
    messages_.push_back({.role = role, .content = content});
  }

  OpenModel opened_;
  std::optional<text::ChatTemplate> template_;
  generate::TextOptions options_;
  bool streams_;
  std::vector<text::ChatMessage> messages_;
};

void run(const ChatSettings& settings) {
  Chat chat(settings, models::load_model(settings.model, load_options(settings.compute)));
  const auto answer = [&](const std::string& question) {
    const auto given = chat.ask(question);
    if (settings.json)
      std::cout << nlohmann::ordered_json{{"question", question}, {"answer", given.text}}.dump()
                << std::endl;
  };
  if (settings.prompt) return answer(*settings.prompt);
  std::cerr << "one question a line; an empty line or the end of the input ends the chat\n";
  for (std::string line; std::cerr << "> " << std::flush, std::getline(std::cin, line);) {
    if (line.empty()) break;
    answer(line);
  }
}

}  // namespace

Verb chat_verb() {
  return make_verb<ChatSettings>(
      "chat", "talks with an instruction-tuned model",
      {{"tempera chat MODEL", "a conversation in the terminal"},
       {"tempera chat MODEL --prompt 'What is a softmax?' --max-tokens 100", "one answer"}},
      run);
}

}  // namespace tempera::cli
