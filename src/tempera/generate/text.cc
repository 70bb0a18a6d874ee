#include "tempera/generate/text.h"

#include <algorithm>

#include "tempera/base/error.h"

namespace tempera::generate {
namespace {

// The longest end of the text that begins the word.
size_t common_length(std::string_view text, std::string_view word) {
  for (size_t size = std::min(text.size(), word.size()); size > 0; --size)
    if (text.ends_with(word.substr(0, size))) return size;
  return 0;
}

int64_t ends_behind(const std::vector<int32_t>& ids, const text::SpecialTokens& special) {
  const auto other =
      std::find_if(ids.rbegin(), ids.rend(), [&](int32_t id) { return id != special.end_of_text; });
  return other - ids.rbegin();
}

}  // namespace

std::vector<int64_t> encode_prompt(const text::Tokenizer& tokenizer, const std::string& prompt,
                                   text::EncodeOptions options) {
  std::vector<int32_t> ids;
  tokenizer.encode(prompt, ids, options);
  // The end of a text is no beginning of an answer, unless the text spells it.
  const auto special = tokenizer.special();
  if (options.add_special && ends_behind(ids, special) > 0) {
    std::vector<int32_t> spelled;
    tokenizer.encode(prompt, spelled, {.parse_special = options.parse_special});
    const int64_t added = ends_behind(ids, special) - ends_behind(spelled, special);
    ids.resize(ids.size() - static_cast<size_t>(std::max<int64_t>(added, 0)));
  }
  if (ids.empty()) {
    if (special.begin_of_text)
      ids.push_back(*special.begin_of_text);
    else
      tokenizer.encode("\n", ids);
  }
  return {ids.begin(), ids.end()};
}

void TextOptions::declare(config::Options& options) {
  options.section(config::Section::kText);
  options.option("max-tokens", tokens.max_tokens, config::range(0, 1e9),
                 "most tokens to generate per answer");
  options.option("stop", stop, "strings that end an answer");
  tokens.sampler.declare(options);
}

size_t TextStream::held_back() const {
  size_t most = 0;
  for (const auto& word : stop_) most = std::max(most, common_length(text_, word));
  return std::min(most, text_.size() - given_);
}

std::string TextStream::grow(std::string_view more) {
  text_ += more;
  size_t end = std::string::npos;
  for (const auto& word : stop_) end = std::min(end, text_.find(word, given_));
  if (end != std::string::npos) {
    text_.resize(end);
    stopped_ = true;
  }
  const size_t certain = text_.size() - (stopped_ ? 0 : held_back());
  std::string piece = text_.substr(given_, certain - given_);
  given_ = certain;
  return piece;
}

std::string TextStream::add(int64_t token) {
  return grow(decoder_.push(static_cast<int32_t>(token)));
}

std::string TextStream::finish() {
  std::string piece = stopped_ ? "" : grow(decoder_.finish());
  piece += text_.substr(given_);
  given_ = text_.size();
  return piece;
}

std::vector<TextAnswer> generate_text(nn::Model& model, const text::Tokenizer& tokenizer,
                                      const std::vector<std::string>& prompts,
                                      const TextOptions& options, const TextCallback& on_text) {
  TEMPERA_CHECK(std::ranges::none_of(options.stop, &std::string::empty),
                "an empty stop string given; it would end every answer at once");
  GenerateOptions tokens = options.tokens;
  if (const auto end = tokenizer.special().end_of_text) tokens.stop_tokens.push_back(*end);
  std::vector<std::vector<int64_t>> ids;
  std::vector<TextStream> streams;
  for (const auto& prompt : prompts) {
    ids.push_back(encode_prompt(tokenizer, prompt, options.encode));
    streams.emplace_back(tokenizer, options.stop);
  }
  const auto give = [&](size_t prompt, const std::string& piece) {
    if (on_text && !piece.empty()) on_text(prompt, piece);
  };
  auto answers = generate(model, ids, tokens, [&](size_t prompt, const Token& token) {
    give(prompt, streams[prompt].add(token.id));
    return !streams[prompt].stopped();
  });
  std::vector<TextAnswer> result;
  for (size_t i = 0; i < answers.size(); ++i) {
    give(i, streams[i].finish());
    const Finish finish = streams[i].stopped() ? Finish::kStop
                          : answers[i].stopped ? Finish::kEnd
                                               : Finish::kLength;
    result.push_back({streams[i].text(), std::move(answers[i]), finish});
  }
  return result;
}

}  // namespace tempera::generate
