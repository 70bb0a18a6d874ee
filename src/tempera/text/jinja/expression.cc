#include "tempera/text/jinja/expression.h"

#include <algorithm>
#include <array>
#include <set>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/text/jinja/functions.h"

namespace tempera::text::jinja {
namespace {

// Of the tree and of the parser's own recursion: evaluation goes down once more for each.
constexpr int kDeepestExpression = 200;

class Level {
 public:
  Level(int& depth, const TokenStream& tokens) : depth_(depth) {
    if (++depth_ > kDeepestExpression)
      tokens.fail(concat("expressions nested deeper than ", kDeepestExpression));
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

void refuse_unknown(const TokenStream& tokens, const char* what, const std::string& name,
                    const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) == known.end())
    tokens.fail(concat("the ", what, " '", name, "' is not supported", did_you_mean(name, known)));
}

}  // namespace

ExprPtr ExpressionParser::make(ExprKind kind, std::string name) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = tokens_.now().line;
  node->name = std::move(name);
  return node;
}

void ExpressionParser::deepen(Expr& node, const Expr& child) const {
  node.depth = std::max(node.depth, child.depth + 1);
  if (node.depth > kDeepestExpression)
    tokens_.fail(concat("expressions nested deeper than ", kDeepestExpression));
}

void ExpressionParser::put(Expr& node, ExprPtr child) const {
  if (child) deepen(node, *child);
  node.items.push_back(std::move(child));
}

template <class... Children>
ExprPtr ExpressionParser::make_with(ExprKind kind, std::string name, Children... children) const {
  auto node = make(kind, std::move(name));
  (put(*node, std::move(children)), ...);
  return node;
}

ExprPtr ExpressionParser::expression(bool with_condition) {
  const Level level(depth_, tokens_);
  return with_condition ? condition() : either();
}

ExprPtr ExpressionParser::condition() {
  auto node = either();
  while (tokens_.skip_name("if")) {
    auto test = either();
    const Level level(depth_, tokens_);
    auto otherwise = tokens_.skip_name("else") ? condition() : nullptr;
    node =
        make_with(ExprKind::kCondition, "", std::move(test), std::move(node), std::move(otherwise));
  }
  return node;
}

ExprPtr ExpressionParser::either() {
  auto node = both();
  while (tokens_.skip_name("or")) {
    auto right = both();
    node = make_with(ExprKind::kOr, "", std::move(node), std::move(right));
  }
  return node;
}

ExprPtr ExpressionParser::both() {
  auto node = negation();
  while (tokens_.skip_name("and")) {
    auto right = negation();
    node = make_with(ExprKind::kAnd, "", std::move(node), std::move(right));
  }
  return node;
}

ExprPtr ExpressionParser::negation() {
  if (!tokens_.skip_name("not")) return comparison();
  const Level level(depth_, tokens_);
  auto inner = negation();
  return make_with(ExprKind::kNot, "", std::move(inner));
}

ExprPtr ExpressionParser::comparison() {
  constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  auto first = sum();
  ExprPtr node;
  const auto add = [&](std::string name) {
    if (!node) node = make_with(ExprKind::kCompare, "", std::move(first));
    node->operators.push_back(std::move(name));
    put(*node, sum());
  };
  while (true) {
    const Token& token = tokens_.now();
    if (token.kind == TokenKind::kOperator &&
        std::find(kOperators.begin(), kOperators.end(), token.text) != kOperators.end()) {
      add(tokens_.take().text);
    } else if (tokens_.skip_name("in")) {
      add("in");
    } else if (tokens_.is_name("not") && tokens_.ahead().kind == TokenKind::kName &&
               tokens_.ahead().text == "in") {
      tokens_.take();
      tokens_.take();
      add("not in");
    } else {
      return node ? std::move(node) : std::move(first);
    }
  }
}

ExprPtr ExpressionParser::sum() {
  auto node = joined();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    auto name = tokens_.take().text;
    auto right = joined();
    node = make_with(ExprKind::kBinary, std::move(name), std::move(node), std::move(right));
  }
  return node;
}

ExprPtr ExpressionParser::joined() {
  auto first = product();
  if (!tokens_.is_operator("~")) return first;
  auto node = make_with(ExprKind::kConcat, "", std::move(first));
  while (tokens_.skip_operator("~")) put(*node, product());
  return node;
}

ExprPtr ExpressionParser::product() {
  auto node = power();
  while (tokens_.is_operator("*") || tokens_.is_operator("/") || tokens_.is_operator("//") ||
         tokens_.is_operator("%")) {
    auto name = tokens_.take().text;
    auto right = power();
    node = make_with(ExprKind::kBinary, std::move(name), std::move(node), std::move(right));
  }
  return node;
}

ExprPtr ExpressionParser::power() {
  auto node = unary();
  while (tokens_.skip_operator("**")) {
    auto right = unary();
    node = make_with(ExprKind::kBinary, "**", std::move(node), std::move(right));
  }
  return node;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  const Level level(depth_, tokens_);
  ExprPtr node;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const bool minus = tokens_.take().text == "-";
    auto inner = unary(false);
    node = make_with(minus ? ExprKind::kNegative : ExprKind::kPositive, "", std::move(inner));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  auto node = make(ExprKind::kConst);
  const Token& token = tokens_.now();
  if (token.kind == TokenKind::kName) {
    const std::string name = tokens_.take().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      node->value = Value(name == "true" || name == "True");
    } else if (name == "none" || name == "None") {
      node->value = Value::none();
    } else {
      node->kind = ExprKind::kName;
      node->name = name;
    }
  } else if (token.kind == TokenKind::kString) {
    std::string text;
    while (tokens_.is(TokenKind::kString)) text += tokens_.take().text;
    node->value = Value::text(std::move(text));
  } else if (token.kind == TokenKind::kInteger) {
    node->value = Value(tokens_.take().integer);
  } else if (token.kind == TokenKind::kFloat) {
    node->value = Value(tokens_.take().real);
  } else if (tokens_.skip_operator("(")) {
    node = tuple(/*with_condition=*/true, {}, /*in_brackets=*/true);
    tokens_.expect_operator(")");
  } else if (tokens_.is_operator("[")) {
    return literal_list();
  } else if (tokens_.is_operator("{")) {
    return literal_dict();
  } else {
    tokens_.unexpected("an expression");
  }
  return node;
}

ExprPtr ExpressionParser::tuple(bool with_condition, std::string_view end, bool in_brackets) {
  const auto ended = [&] {
    return tokens_.is(TokenKind::kVariableEnd) || tokens_.is(TokenKind::kBlockEnd) ||
           tokens_.is_operator(")") || (!end.empty() && tokens_.is_name(end));
  };
  if (ended() && !in_brackets) tokens_.unexpected("an expression");
  auto node = make(ExprKind::kTuple);
  bool comma = false;
  while (!ended()) {
    put(*node, expression(with_condition));
    if (!tokens_.skip_operator(",")) break;
    comma = true;
  }
  if (!comma && !node->items.empty()) return std::move(node->items.front());
  return node;
}

ExprPtr ExpressionParser::literal_list() {
  auto node = make(ExprKind::kList);
  tokens_.expect_operator("[");
  while (!tokens_.is_operator("]")) {
    put(*node, expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return node;
}

ExprPtr ExpressionParser::literal_dict() {
  auto node = make(ExprKind::kDict);
  tokens_.expect_operator("{");
  while (!tokens_.is_operator("}")) {
    put(*node, expression());
    tokens_.expect_operator(":");
    put(*node, expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  while (true) {
    if (tokens_.is_operator(".") || tokens_.is_operator("["))
      node = subscript(std::move(node));
    else if (tokens_.is_operator("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr node) {
  while (true) {
    if (tokens_.skip_operator("|"))
      node = filter(std::move(node));
    else if (tokens_.is_name("is"))
      node = test(std::move(node));
    else if (tokens_.is_operator("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  if (!tokens_.skip_operator(".")) return brackets(std::move(node));
  if (tokens_.is(TokenKind::kName)) {
    auto name = tokens_.take().text;
    return make_with(ExprKind::kGetattr, std::move(name), std::move(node));
  }
  if (!tokens_.is(TokenKind::kInteger)) tokens_.unexpected("a name or a number");
  auto index = make(ExprKind::kConst);
  index->value = Value(tokens_.take().integer);
  return make_with(ExprKind::kGetitem, "", std::move(node), std::move(index));
}

ExprPtr ExpressionParser::brackets(ExprPtr node) {
  tokens_.expect_operator("[");
  std::array<ExprPtr, 3> parts;
  size_t colons = 0;
  while (!tokens_.is_operator("]")) {
    if (tokens_.is_operator(":")) {
      if (++colons > 2) tokens_.unexpected("']'");
      tokens_.take();
    } else if (parts[colons]) {
      if (tokens_.is_operator(",")) tokens_.fail("a subscript with a comma is not supported");
      tokens_.unexpected("']'");
    } else {
      parts[colons] = expression();
    }
  }
  tokens_.expect_operator("]");
  if (colons > 0)
    return make_with(ExprKind::kSlice, "", std::move(node), std::move(parts[0]),
                     std::move(parts[1]), std::move(parts[2]));
  if (!parts[0]) tokens_.fail("a subscript without a value");
  return make_with(ExprKind::kGetitem, "", std::move(node), std::move(parts[0]));
}

void ExpressionParser::arguments(Expr& call) {
  tokens_.expect_operator("(");
  std::set<std::string> names;
  while (!tokens_.is_operator(")")) {
    if (tokens_.is_operator("*") || tokens_.is_operator("**"))
      tokens_.fail(concat("an argument with '", tokens_.now().text, "' is not supported"));
    const Token& ahead = tokens_.ahead();
    if (tokens_.is(TokenKind::kName) && ahead.kind == TokenKind::kOperator && ahead.text == "=") {
      auto name = tokens_.take().text;
      tokens_.take();
      if (!names.insert(name).second) tokens_.fail(concat("the argument '", name, "' twice"));
      auto value = expression();
      deepen(call, *value);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!names.empty()) tokens_.fail("an argument without a name behind one with a name");
      put(call, expression());
    }
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
}

ExprPtr ExpressionParser::call(ExprPtr node) {
  auto made = make_with(ExprKind::kCall, "", std::move(node));
  arguments(*made);
  return made;
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect_name();
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect_name();
  return name;
}

ExprPtr ExpressionParser::filter(ExprPtr node) {
  auto made = make_with(ExprKind::kFilter, "", std::move(node));
  made->name = dotted_name();
  if (strict_) refuse_unknown(tokens_, "filter", made->name, filter_names());
  if (tokens_.is_operator("(")) arguments(*made);
  return made;
}

ExprPtr ExpressionParser::block_filter() {
  ExprPtr node;
  while (tokens_.skip_operator("|")) node = filter(std::move(node));
  return node;
}

ExprPtr ExpressionParser::inline_filter() {
  auto node = filter(nullptr);
  while (tokens_.skip_operator("|")) node = filter(std::move(node));
  return node;
}

ExprPtr ExpressionParser::test(ExprPtr node) {
  tokens_.take();
  const bool negated = tokens_.skip_name("not");
  auto made = make_with(ExprKind::kTest, "", std::move(node));
  made->name = dotted_name();
  if (strict_) refuse_unknown(tokens_, "test", made->name, test_names());
  const Token& next = tokens_.now();
  const bool literal = next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                       next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
                       tokens_.is_operator("[") || tokens_.is_operator("{");
  if (tokens_.is_operator("(")) {
    arguments(*made);
  } else if (literal && !tokens_.is_name("else") && !tokens_.is_name("or") &&
             !tokens_.is_name("and")) {
    if (tokens_.is_name("is")) tokens_.fail("tests with 'is' cannot be chained");
    put(*made, postfix(primary()));
  }
  return negated ? make_with(ExprKind::kNot, "", std::move(made)) : std::move(made);
}

}  // namespace tempera::text::jinja
