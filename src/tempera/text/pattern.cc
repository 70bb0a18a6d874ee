#include "tempera/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "tempera/base/error.h"
#include "tempera/text/scanner.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

constexpr size_t kLongestExpression = 1 << 16;
constexpr uint32_t kMatchLimit = 10'000'000;  // steps for one match
constexpr uint32_t kHeapLimit = 64 * 1024;    // KiB

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

// Oniguruma's \s has no U+180E and its \h is a hexadecimal digit; both are spelled out. Inside of a
// class \S and \H cannot be, and mean PCRE2's.
std::string translate(const std::string& expression) {
  std::string result;
  size_t depth = 0;  // of character classes
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char kind = expression[++i];
      const std::string_view members = kind == 's' || kind == 'S'   ? kSpaces
                                       : kind == 'h' || kind == 'H' ? "0-9a-fA-F"
                                                                    : std::string_view();
      const bool negated = kind == 'S' || kind == 'H';
      if (members.empty() || (depth > 0 && negated)) {
        result += {c, kind};
      } else if (depth > 0) {
        result += members;
      } else {
        result += concat(negated ? "[^" : "[", members, "]");
      }
      continue;
    }
    if (c == '[') {
      ++depth;
      result += c;
      // A ] right at the start is a member.
      if (i + 1 < expression.size() && expression[i + 1] == '^') result += expression[++i];
      if (i + 1 < expression.size() && expression[i + 1] == ']') result += expression[++i];
      continue;
    }
    if (c == ']' && depth > 0) --depth;
    TEMPERA_CHECK(
        !(c == '+' && depth == 0 && i > 0 && expression[i - 1] == '}' &&
          expression.rfind('{', i) != std::string::npos &&
          expression.find_first_not_of("0123456789,", expression.rfind('{', i) + 1) == i - 1),
        "the expression '", expression,
        "' repeats an interval ({n,m}+), which other programs read as possessive; write "
        "(?:...{n,m})+ or (?>...{n,m})");
    result += c;
  }
  return result;
}

std::string error_text(int code) {
  std::array<PCRE2_UCHAR8, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pattern::Compiled {
  std::string expression;
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool jit = false;
};

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(const std::string& expression) {
  Pattern pattern;
  if (expression == kGpt2Pattern) pattern.scanner_ = scan_gpt2;
  if (expression == kLlama3Pattern) pattern.scanner_ = scan_llama3;
  if (expression == kQwen2Pattern) pattern.scanner_ = scan_qwen2;
  return pattern.scanner_ != nullptr ? pattern : regex_by_pcre2(expression);
}

Pattern Pattern::regex_by_pcre2(const std::string& expression) {
  TEMPERA_CHECK(expression.size() <= kLongestExpression, "a pattern of ", expression.size(),
                " bytes; at most ", kLongestExpression, " are taken");
  const std::unique_ptr<pcre2_compile_context, FreeContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  const std::string translated = translate(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->expression = expression;
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get()));
  TEMPERA_CHECK(compiled->code != nullptr, "the pattern '", expression,
                "' is not valid: ", error_text(error), " (at byte ", offset, " of '", translated,
                "')");
  compiled->jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

void Pattern::find_all(std::string_view text, std::vector<Range>& matches) const {
  matches.clear();
  if (scanner_ != nullptr) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = scanner_(text, at);
      matches.push_back({at, end});
      at = end;
    }
  } else if (compiled_ != nullptr) {
    find_regex(text, matches);
  } else {
    find_literal(text, matches);
  }
}

void Pattern::find_literal(std::string_view text, std::vector<Range>& matches) const {
  if (literal_.empty()) return;
  for (size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, at + literal_.size()))
    matches.push_back({at, at + literal_.size()});
}

void Pattern::find_regex(std::string_view text, std::vector<Range>& matches) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimit);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // The text has been checked to be UTF-8 already.
  uint32_t options = PCRE2_NO_UTF_CHECK;
  size_t last_end = std::string_view::npos;
  for (size_t at = 0; at <= text.size();) {
    int found = pcre2_match(compiled_->code.get(), subject, text.size(), at, options, data.get(),
                            context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      continue;
    }
    if (found == PCRE2_ERROR_NOMATCH) return;
    TEMPERA_CHECK(found >= 0, "the pattern '", compiled_->expression, "' failed on a text of ",
                  text.size(), " bytes: ", error_text(found));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Range match{ends[0], ends[1]};
    // \K and lookbehinds could report such.
    TEMPERA_CHECK(match.begin >= at && match.end >= match.begin, "the pattern '",
                  compiled_->expression, "' matches backwards");
    if (match.begin < match.end) {
      matches.push_back(match);
      at = match.end;
    } else {
      if (match.end != last_end) matches.push_back(match);
      at = match.end;
      at += at < text.size() ? character_at(text, at).size : 1;
    }
    last_end = match.end;
  }
}

}  // namespace tempera::text
