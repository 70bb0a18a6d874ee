#pragma once

#include <string_view>

#include "tempera/text/jinja/ast.h"
#include "tempera/text/jinja/tokens.h"

namespace tempera::text::jinja {

// Reads expressions; the precedence is Jinja's, in which filters and tests bind most tightly.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExprPtr expression(bool with_condition = true);
  // Expressions with commas between them are a tuple. `end` is a name that may follow a comma.
  ExprPtr tuple(bool with_condition = true, std::string_view end = {}, bool in_brackets = false);
  // The filters from the first '|' on; null without one.
  ExprPtr block_filter();
  // The same where the first name stands without a '|'.
  ExprPtr inline_filter();

  // Whether an unknown filter or test is refused now. Jinja takes it where it may never be reached.
  void set_strict(bool strict) { strict_ = strict; }

 private:
  ExprPtr condition();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr joined();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr literal_list();
  ExprPtr literal_dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr brackets(ExprPtr node);
  ExprPtr call(ExprPtr node);
  ExprPtr filter(ExprPtr node);
  ExprPtr test(ExprPtr node);
  std::string dotted_name();
  void arguments(Expr& call);

  ExprPtr make(ExprKind kind, std::string name = {}) const;
  // Puts the child under the node; the tree may not get too deep.
  void put(Expr& node, ExprPtr child) const;
  void deepen(Expr& node, const Expr& child) const;
  template <class... Children>
  ExprPtr make_with(ExprKind kind, std::string name, Children... children) const;

  TokenStream& tokens_;
  int depth_ = 0;
  bool strict_ = true;
};

}  // namespace tempera::text::jinja
