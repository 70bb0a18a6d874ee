#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::text::jinja {

enum class TokenKind {
  kText,  // outside of tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // a string's value, without quotes and escapes
  int64_t integer = 0;
  double real = 0;
};

// "the name 'x'" and the like, for messages.
std::string describe(const Token& token);

// An error of the template's text at a line, which the caller puts before the message.
struct SyntaxFault {
  int line;
  std::string message;
};

// The tokens of a template, the last of kind kEnd. Comments and the blanks that tags take away are
// gone. Throws SyntaxFault.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace tempera::text::jinja
