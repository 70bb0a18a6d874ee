#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/generate/generate.h"
#include "tempera/text/stream.h"
#include "tempera/text/tokenizer.h"

namespace tempera::generate {

struct TextOptions {
  GenerateOptions tokens;
  std::vector<std::string> stop;  // an answer ends before one of these
  text::EncodeOptions encode = {.add_special = true, .parse_special = false};

  void declare(config::Options& options);
};

enum class Finish {
  kLength,  // no more room
  kEnd,     // the model ended its text
  kStop     // a stop string came up
};

struct TextAnswer {
  std::string text;
  Answer tokens;  // those of a stop string included
  Finish finish = Finish::kLength;
};

// The ids that a prompt begins with: at least one, and no end of a text but one that it spells.
std::vector<int64_t> encode_prompt(const text::Tokenizer& tokenizer, const std::string& prompt,
                                   text::EncodeOptions options);

// Called with pieces of an answer, whole characters, as soon as they are certain: what may still
// turn out to be a stop string is held back.
using TextCallback = std::function<void(size_t prompt, std::string_view piece)>;

// Continues each prompt. An empty prompt begins with the tokenizer's begin-of-text, or with a new
// line where it has none.
std::vector<TextAnswer> generate_text(nn::Model& model, const text::Tokenizer& tokenizer,
                                      const std::vector<std::string>& prompts,
                                      const TextOptions& options, const TextCallback& on_text = {});

// An answer as it grows: decodes tokens, cuts at stop strings, and knows which part is certain.
class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop)
      : decoder_(tokenizer), stop_(stop) {}

  // The text of a prompt's token, which belongs to no answer and is searched for no stop string;
  // for answers that are shown behind their prompt, before the first add().
  std::string echo(int64_t token) { return decoder_.push(static_cast<int32_t>(token)); }
  // The text that has become certain. The stream ends where a stop string begins.
  std::string add(int64_t token);
  // What was held back.
  std::string finish();
  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }

 private:
  std::string grow(std::string_view more);
  size_t held_back() const;

  text::StreamDecoder decoder_;
  const std::vector<std::string>& stop_;
  std::string text_;
  size_t given_ = 0;
  bool stopped_ = false;
};

}  // namespace tempera::generate
