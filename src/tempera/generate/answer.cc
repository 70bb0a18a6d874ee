#include "tempera/generate/answer.h"

#include "tempera/generate/text.h"

namespace tempera::generate {

std::vector<std::string> answers_to(
    nn::Model& model, const text::Tokenizer& tokenizer,
    const std::vector<std::vector<int64_t>>& prompts, int64_t max_tokens,
    const std::function<bool(size_t prompt, std::string_view so_far)>& enough) {
  const std::vector<std::string> no_stop;
  std::vector<TextStream> streams(prompts.size(), TextStream(tokenizer, no_stop));
  GenerateOptions options{.max_tokens = max_tokens, .window = 0, .sampler = {.temperature = 0}};
  if (const auto end = tokenizer.special().end_of_text) options.stop_tokens.push_back(*end);
  model.eval();
  generate(model, prompts, options, [&](size_t prompt, const Token& token) {
    streams[prompt].add(token.id);
    return !enough(prompt, streams[prompt].text());
  });
  std::vector<std::string> answers;
  for (auto& stream : streams) {
    stream.finish();
    answers.push_back(stream.text());
  }
  return answers;
}

}  // namespace tempera::generate
