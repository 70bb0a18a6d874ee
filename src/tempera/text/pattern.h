#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::text {

struct Range {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Range&) const = default;
};

// Finds what tokenizers split at and replace: a plain string, or a regular expression.
class Pattern {
 public:
  static Pattern literal(std::string text);
  // An expression as tokenizer.json states it, in Oniguruma's syntax. Throws Error with the
  // expression and the place of the fault. Patterns known from models run by a scanner of their
  // own, all others by PCRE2.
  static Pattern regex(const std::string& expression);
  // Always by PCRE2, the oracle of the scanners.
  static Pattern regex_by_pcre2(const std::string& expression);

  // All matches from left to right, without overlaps; an empty one is never at the end of another.
  // Throws Error for an expression that takes too long on this text.
  void find_all(std::string_view text, std::vector<Range>& matches) const;

 private:
  struct Compiled;
  // The end of the match that starts at `at`; the matches of a scanner cover the text.
  using Scanner = size_t (*)(std::string_view text, size_t at);

  void find_literal(std::string_view text, std::vector<Range>& matches) const;
  void find_regex(std::string_view text, std::vector<Range>& matches) const;

  std::string literal_;
  Scanner scanner_ = nullptr;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tempera::text
