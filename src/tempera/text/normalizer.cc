#include "tempera/text/normalizer.h"

#include <utility>

#include "tempera/text/byte_level.h"

namespace tempera::text {
namespace {

// Calls each(code, result) for every character; it appends what stays.
template <class Each>
void rewrite(std::string& text, Each&& each) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    each(c.code, result);
    at += c.size;
  }
  text = std::move(result);
}

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override { normalize(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override { lowercase(text); }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const Character c = character_at(text, begin);
      if (!is_space(c.code)) break;
      begin += c.size;
    }
    while (right_ && end > begin) {
      const Character c = last_character(std::string_view(text).substr(0, end));
      if (!is_space(c.code)) break;
      end -= c.size;
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    rewrite(text, [](char32_t code, std::string& result) {
      if (!is_mark(code)) append_utf8(result, code);
    });
  }
};

class Nmt final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    rewrite(text, [](char32_t code, std::string& result) {
      if (dropped(code)) return;
      append_utf8(result, blank(code) ? U' ' : code);
    });
  }

 private:
  static bool dropped(char32_t code) {
    return (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
  }
  static bool blank(char32_t code) {
    return code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string mapped;
    append_byte_level(text, mapped);
    text = std::move(mapped);
  }
};

class Bert final : public Normalizer {
 public:
  explicit Bert(BertOptions options) : options_(options) {}
  void apply(std::string& text) const override {
    if (options_.clean_text) rewrite(text, clean);
    if (options_.handle_chinese_chars && !is_ascii(text)) rewrite(text, put_spaces);
    if (options_.strip_accents && !is_ascii(text)) {
      normalize(text, NormalForm::kNfd);
      rewrite(text, [](char32_t code, std::string& result) {
        if (!is_nonspacing_mark(code)) append_utf8(result, code);
      });
    }
    if (options_.lowercase) lowercase(text);
  }

 private:
  static void clean(char32_t code, std::string& result) {
    if (is_space(code)) {
      const bool control = is_control(code) && code != '\t' && code != '\n' && code != '\r';
      if (!control) result += ' ';
    } else if (code != 0 && code != 0xFFFD && !is_control(code)) {
      append_utf8(result, code);
    }
  }
  // Ideographs are words of their own.
  static void put_spaces(char32_t code, std::string& result) {
    const bool ideograph =
        (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
        (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
        (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
        (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
    if (ideograph) result += ' ';
    append_utf8(result, code);
    if (ideograph) result += ' ';
  }

  BertOptions options_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text) const override { replace_all(pattern_, content_, text); }

 private:
  Pattern pattern_;
  std::string content_;
};

}  // namespace

void replace_all(const Pattern& pattern, const std::string& content, std::string& text) {
  std::vector<Range> matches;
  pattern.find_all(text, matches);
  if (matches.empty()) return;
  std::string result;
  result.reserve(text.size() + matches.size() * content.size());
  size_t at = 0;
  for (const Range& match : matches) {
    result.append(text, at, match.begin - at);
    result += content;
    at = match.end;
  }
  result.append(text, at);
  text = std::move(result);
}

std::unique_ptr<Normalizer> unicode_normalizer(NormalForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}
std::unique_ptr<Normalizer> lowercase_normalizer() { return std::make_unique<Lowercase>(); }
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> strip_accents_normalizer() { return std::make_unique<StripAccents>(); }
std::unique_ptr<Normalizer> nmt_normalizer() { return std::make_unique<Nmt>(); }
std::unique_ptr<Normalizer> byte_level_normalizer() {
  return std::make_unique<ByteLevelNormalizer>();
}
std::unique_ptr<Normalizer> bert_normalizer(BertOptions options) {
  return std::make_unique<Bert>(options);
}
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> replace_normalizer(Pattern pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}

}  // namespace tempera::text
