#include "tempera/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>

#include "tempera/base/error.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

// Lines end with one newline, whatever the file has, and the last one with none.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t open = find_tag(at_);
      if (open == source_.npos) {
        text(source_.substr(at_));
        break;
      }
      tag(open);
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const {
    throw SyntaxFault{line_, std::move(message)};
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }

  void advance(size_t count) {
    const auto part = std::string_view(source_).substr(at_, count);
    line_ += static_cast<int>(std::count(part.begin(), part.end(), '\n'));
    at_ += part.size();
  }

  void skip_blanks() { advance(rest().size() - strip(rest(), Side::kLeft).size()); }

  size_t find_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at != source_.npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() &&
          std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos)
        return at;
    return source_.npos;
  }

  void text(std::string text) {
    if (!text.empty()) add(TokenKind::kText, std::move(text));
  }

  // Text up to a tag: '-' takes all blanks before the tag, and unless there is a '+', a tag that
  // prints nothing takes the blanks between it and the start of its line.
  void text_before(size_t open) {
    std::string_view before = std::string_view(source_).substr(at_, open - at_);
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    if (sign == '-') {
      before = strip(before, Side::kRight);
    } else if (sign != '+' && source_[open + 1] != '{') {
      const size_t newline = before.rfind('\n');
      const bool starts_line = newline != before.npos || at_ == 0 || source_[at_ - 1] == '\n';
      const size_t line_begin = newline == before.npos ? 0 : newline + 1;
      if (starts_line && strip(before.substr(line_begin), Side::kLeft).empty())
        before = before.substr(0, line_begin);
    }
    text(std::string(before));
    advance(open - at_);
  }

  void tag(size_t open) {
    text_before(open);
    const char kind = source_[open + 1];
    advance(2);
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) advance(1);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    expression(kind == '{');
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail("a comment '{#' without its end '#}'");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2 - at_);
    after_end(sign);
  }

  // What a block's or comment's end takes with it.
  void after_end(char sign) {
    if (sign == '-') skip_blanks();
    if (sign != '-' && sign != '+' && rest().starts_with('\n')) advance(1);
  }

  // "{% raw %}" to "{% endraw %}": text whatever it holds. False, and nothing read, for other tags.
  bool raw() {
    const size_t before = at_;
    const int line = line_;
    skip_blanks();
    if (!take_word("raw")) return back(before, line);
    skip_blanks();
    const bool minus = rest().starts_with("-%}");
    if (!minus && !rest().starts_with("%}")) return back(before, line);
    advance(minus ? 3 : 2);
    if (minus) skip_blanks();
    while (true) {
      const size_t end = source_.find("{%", raw_from());
      if (end == source_.npos) fail("'{% raw %}' without its '{% endraw %}'");
      if (raw_end(end)) return true;
    }
  }

  bool back(size_t at, int line) {
    at_ = at;
    line_ = line;
    return false;
  }

  size_t raw_from() { return std::max(at_, raw_search_); }

  bool raw_end(size_t end) {
    const size_t begin = at_;
    const int line = line_;
    at_ = end + 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    skip_blanks();
    bool found = take_word("endraw");
    if (found) skip_blanks();
    const char sign = rest().empty() ? ' ' : rest().front();
    const size_t length = sign == '-' || sign == '+' ? 3 : 2;
    found = found && rest().substr(length - 2).starts_with("%}");
    const size_t after = at_ + length;
    back(begin, line);
    raw_search_ = end + 2;
    if (!found) return false;
    text_before(end);
    advance(after - at_);
    after_end(sign);
    return true;
  }

  bool take_word(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    if (rest().size() > word.size() && is_name(rest()[word.size()])) return false;
    advance(word.size());
    return true;
  }

  // The tokens of a tag, to its end. An end inside brackets is two closing braces.
  void expression(bool variable) {
    const int begin = line_;
    brackets_.clear();
    while (true) {
      skip_blanks();
      if (at_ >= source_.size()) {
        line_ = begin;
        fail(variable ? "'{{' without its '}}'" : "'{%' without its '%}'");
      }
      if (brackets_.empty() && take_end(variable)) return;
      token();
    }
  }

  bool take_end(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    const char sign = rest().front();
    const bool signed_end =
        (sign == '-' || (sign == '+' && !variable)) && rest().substr(1).starts_with(close);
    if (!signed_end && !rest().starts_with(close)) return false;
    add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    advance(signed_end ? 3 : 2);
    if (variable && signed_end) skip_blanks();
    if (!variable) after_end(signed_end ? sign : ' ');
    return true;
  }

  void token() {
    const char c = rest().front();
    if (is_digit(c)) return number();
    if (is_name(c)) {
      const auto end = std::find_if_not(rest().begin(), rest().end(), is_name);
      const std::string name(rest().begin(), end);
      add(TokenKind::kName, name);
      return advance(name.size());
    }
    if (c == '\'' || c == '"') return string(c);
    operation();
  }

  void operation() {
    constexpr std::array<std::string_view, 25> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto found =
        std::find_if(kOperators.begin(), kOperators.end(),
                     [&](std::string_view name) { return rest().starts_with(name); });
    if (found == kOperators.end()) {
      size_t after = 0;
      next_code_point(rest(), after);
      fail(concat("unexpected character ", repr(rest().substr(0, after))));
    }
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(found->front()) != kOpen.npos) brackets_ += found->front();
    if (const size_t which = kClose.find(found->front()); which != kClose.npos) {
      if (brackets_.empty() || brackets_.back() != kOpen[which])
        fail(concat("unexpected '", *found, "'"));
      brackets_.pop_back();
    }
    add(TokenKind::kOperator, std::string(*found));
    advance(found->size());
  }

  void number() {
    const auto digits = [&](size_t from) {
      size_t end = from;
      while (end < rest().size() &&
             (is_digit(rest()[end]) || (rest()[end] == '_' && end > from &&
                                        end + 1 < rest().size() && is_digit(rest()[end + 1]))))
        ++end;
      return end;
    };
    size_t end = digits(0);
    // In "list.0.1" the dots are subscripts.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    bool real = false;
    if (const size_t fraction = digits(end + 1);
        !after_dot && end < rest().size() && rest()[end] == '.' && fraction > end + 1) {
      real = true;
      end = fraction;
    }
    if (end < rest().size() && !after_dot && (rest()[end] == 'e' || rest()[end] == 'E')) {
      const size_t sign =
          end + 1 < rest().size() && (rest()[end + 1] == '+' || rest()[end + 1] == '-');
      if (const size_t exponent = digits(end + 1 + sign); exponent > end + 1 + sign) {
        real = true;
        end = exponent;
      }
    }
    std::string text(rest().substr(0, end));
    std::erase(text, '_');
    Token made{.kind = real ? TokenKind::kFloat : TokenKind::kInteger, .line = line_, .text = text};
    const char* last = text.data() + text.size();
    const auto result = real ? std::from_chars(text.data(), last, made.real)
                             : std::from_chars(text.data(), last, made.integer);
    const bool zeros = !real && text.size() > 1 && text.front() == '0';
    if (result.ec != std::errc() || result.ptr != last || (zeros && made.integer != 0) ||
        (end < rest().size() && is_name(rest()[end])))
      fail(concat("the number '", text, "' is not supported"));
    tokens_.push_back(std::move(made));
    advance(end);
  }

  void string(char quote) {
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) fail("a string without its closing quote");
    add(TokenKind::kString, unescape(rest().substr(1, end - 1)));
    advance(end + 1);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      const size_t slash = std::min(text.find('\\'), text.size());
      out += text.substr(0, slash);
      text.remove_prefix(slash);
      if (!text.empty()) text.remove_prefix(escape(text, out));
    }
    return out;
  }

  // Adds what a backslash and the characters behind it mean; their number.
  size_t escape(std::string_view text, std::string& out) const {
    const char c = text[1];  // a string never ends with a lone backslash
    constexpr std::string_view kNames = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t which = kNames.find(c); which != kNames.npos) {
      out += kMeanings[which];
      return 2;
    }
    if (c == '\n') return 2;
    if (c >= '0' && c <= '7') {
      size_t end = 1;
      while (end < 4 && end < text.size() && text[end] >= '0' && text[end] <= '7') ++end;
      append_utf8(out, code(text.substr(1, end - 1), 8));
      return end;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      append_utf8(out, code(text.substr(2, digits), 16, digits));
      return 2 + digits;
    }
    if (c == 'N' || static_cast<unsigned char>(c) >= 0x80)
      fail(concat("the escape '\\", c == 'N' ? "N" : "...", "' in a string is not supported"));
    out += '\\';
    out += c;
    return 2;
  }

  char32_t code(std::string_view digits, int base, size_t needed = 0) const {
    uint32_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size() ||
        digits.size() < needed || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      fail(concat("the escape with the code '", digits, "' in a string is no character"));
    return value;
  }

  std::string source_;
  size_t at_ = 0;
  size_t raw_search_ = 0;
  int line_ = 1;
  std::string brackets_;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return concat("the string ", repr(token.text));
    default:
      return concat("'", token.text, "'");
  }
}

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(normalize(source)).run();
}

}  // namespace tempera::text::jinja
