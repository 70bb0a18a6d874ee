#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tempera/text/pattern.h"
#include "tempera/text/unicode.h"

namespace tempera::text {

// Changes the text before it is split.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

std::unique_ptr<Normalizer> unicode_normalizer(NormalForm form);
std::unique_ptr<Normalizer> lowercase_normalizer();
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right);
std::unique_ptr<Normalizer> strip_accents_normalizer();
std::unique_ptr<Normalizer> nmt_normalizer();
std::unique_ptr<Normalizer> byte_level_normalizer();
std::unique_ptr<Normalizer> bert_normalizer(BertOptions options);
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix);
std::unique_ptr<Normalizer> replace_normalizer(Pattern pattern, std::string content);

// The text with every match replaced.
void replace_all(const Pattern& pattern, const std::string& content, std::string& text);

}  // namespace tempera::text
