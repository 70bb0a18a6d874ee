#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tempera/text/jinja/lexer.h"

namespace tempera::text::jinja {

// A walk through the tokens, for the parsers.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_operator(std::string_view text) const {
    return is(TokenKind::kOperator) && now().text == text;
  }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && now().text == text; }
  bool skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }

  [[noreturn]] void fail(std::string message) const {
    throw SyntaxFault{now().line, std::move(message)};
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fail("unexpected " + describe(now()) + "; expected " + std::string(wanted));
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) unexpected("'" + std::string(text) + "'");
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) unexpected("a name");
    return take().text;
  }
  void expect(TokenKind kind, std::string_view wanted) {
    if (!is(kind)) unexpected(wanted);
    take();
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace tempera::text::jinja
