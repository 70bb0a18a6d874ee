#include "tempera/text/jinja/parser.h"

#include <algorithm>
#include <array>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/text/jinja/expression.h"
#include "tempera/text/jinja/tokens.h"

namespace tempera::text::jinja {
namespace {

constexpr int kDeepestBlock = 100;

class Parser {
 public:
  explicit Parser(std::string_view source)
      : tokens_(tokenize_template(source)), expressions_(tokens_) {}

  Document run() {
    Document document{.body = body({})};
    if (!tokens_.is(TokenKind::kEnd)) tokens_.unexpected("the end of the template");
    return document;
  }

 private:
  // Statements up to a block that begins with one of the names, which stays.
  Body body(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kDeepestBlock) tokens_.fail(concat("blocks nested deeper than ", kDeepestBlock));
    Body statements;
    while (true) {
      if (tokens_.is(TokenKind::kText)) {
        Stmt made = start(StmtKind::kText);
        made.text = tokens_.take().text;
        statements.push_back(std::move(made));
      } else if (tokens_.is(TokenKind::kVariableBegin)) {
        statements.push_back(output());
      } else if (tokens_.is(TokenKind::kBlockBegin)) {
        const Token& word = tokens_.ahead();
        if (std::find(ends.begin(), ends.end(), word.text) != ends.end()) break;
        tokens_.take();
        statements.push_back(statement());
      } else {
        break;
      }
    }
    if (ends.size() > 0 && !tokens_.is(TokenKind::kBlockBegin))
      tokens_.unexpected(concat("'{% ", *(ends.end() - 1), " %}'"));
    --depth_;
    return statements;
  }

  Stmt start(StmtKind kind) const {
    Stmt made;
    made.kind = kind;
    made.line = tokens_.now().line;
    return made;
  }

  Stmt output() {
    tokens_.take();
    Stmt made = start(StmtKind::kOutput);
    made.expr = expressions_.tuple();
    tokens_.expect(TokenKind::kVariableEnd, "'}}'");
    return made;
  }

  Stmt statement() {
    if (!tokens_.is(TokenKind::kName)) tokens_.unexpected("the name of a block");
    const std::string& name = tokens_.now().text;
    if (name == "if") return condition();
    if (name == "for") return loop();
    if (name == "set") return assignment();
    if (name == "macro") return macro();
    if (name == "filter") return filter();
    if (name == "generation") return generation();
    if (name == "break" || name == "continue") return jump();
    const std::vector<std::string> known = {"if",     "for",        "set",   "macro",
                                            "filter", "generation", "break", "continue"};
    tokens_.fail(concat("the block '", name, "' is not supported here", did_you_mean(name, known)));
  }

  void end_block() { tokens_.expect(TokenKind::kBlockEnd, "'%}'"); }

  // "{% name %}", which body() has found.
  void close(std::string_view name) {
    tokens_.take();
    if (!tokens_.skip_name(name)) tokens_.unexpected(concat("'", name, "'"));
    end_block();
  }

  Stmt condition() {
    Stmt made = start(StmtKind::kIf);
    tokens_.take();
    ++conditions_;
    while (true) {
      ExprPtr test = expressions_.tuple(/*with_condition=*/false);
      end_block();
      expressions_.set_strict(false);
      made.branches.push_back({std::move(test), body({"elif", "else", "endif"})});
      if (tokens_.ahead().text != "elif") break;
      tokens_.take();
      tokens_.take();
    }
    if (tokens_.ahead().text == "else") {
      close("else");
      made.branches.push_back({nullptr, body({"endif"})});
    }
    close("endif");
    expressions_.set_strict(--conditions_ == 0);
    return made;
  }

  Stmt loop() {
    Stmt made = start(StmtKind::kFor);
    tokens_.take();
    made.target = target(/*with_attribute=*/false);
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    made.expr = expressions_.tuple(/*with_condition=*/false, "recursive");
    if (tokens_.skip_name("if")) made.condition = expressions_.expression();
    if (tokens_.is_name("recursive")) tokens_.fail("a recursive loop is not supported");
    end_block();
    ++loops_;
    made.branches.push_back({nullptr, body({"else", "endfor"})});
    --loops_;
    if (tokens_.ahead().text == "else") {
      close("else");
      made.branches.push_back({nullptr, body({"endfor"})});
    }
    close("endfor");
    return made;
  }

  Stmt assignment() {
    Stmt made = start(StmtKind::kSet);
    tokens_.take();
    made.target = target(/*with_attribute=*/true);
    if (tokens_.skip_operator("=")) {
      made.expr = expressions_.tuple();
      end_block();
      return made;
    }
    made.kind = StmtKind::kCapture;
    made.expr = expressions_.block_filter();
    end_block();
    made.branches.push_back({nullptr, body({"endset"})});
    close("endset");
    return made;
  }

  // Names with commas between them, with or without brackets around.
  Target target(bool with_attribute) {
    Target all;
    bool comma = false;
    while (tokens_.is(TokenKind::kName) || tokens_.is_operator("(")) {
      if (tokens_.is_name("in") && comma) break;
      all.parts.push_back(target_part(with_attribute));
      if (!tokens_.skip_operator(",")) break;
      comma = true;
    }
    if (all.parts.empty()) tokens_.unexpected("the name of a variable");
    return comma ? std::move(all) : std::move(all.parts.front());
  }

  Target target_part(bool with_attribute) {
    if (tokens_.skip_operator("(")) {
      if (++depth_ > kDeepestBlock)
        tokens_.fail(concat("brackets nested deeper than ", kDeepestBlock));
      Target inner = target(with_attribute);
      --depth_;
      tokens_.expect_operator(")");
      return inner;
    }
    Target made;
    made.name = tokens_.expect_name();
    constexpr std::array<std::string_view, 6> kConstants = {"true",  "True", "false",
                                                            "False", "none", "None"};
    if (std::find(kConstants.begin(), kConstants.end(), made.name) != kConstants.end())
      tokens_.fail(concat("'", made.name, "' cannot be assigned to"));
    if (with_attribute && tokens_.skip_operator(".")) made.attribute = tokens_.expect_name();
    return made;
  }

  Stmt macro() {
    Stmt made = start(StmtKind::kMacro);
    tokens_.take();
    made.text = tokens_.expect_name();
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      Parameter parameter{.name = tokens_.expect_name(), .standard = nullptr};
      if (tokens_.skip_operator("="))
        parameter.standard = expressions_.expression();
      else if (!made.parameters.empty() && made.parameters.back().standard)
        tokens_.fail("a parameter without a default behind one with a default");
      made.parameters.push_back(std::move(parameter));
      if (!tokens_.skip_operator(",")) break;
    }
    tokens_.expect_operator(")");
    end_block();
    made.branches.push_back(outside_loops("endmacro"));
    return made;
  }

  // A body that no break can leave, and its end.
  Branch outside_loops(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Branch made{nullptr, body({end})};
    loops_ = loops;
    close(end);
    return made;
  }

  Stmt filter() {
    Stmt made = start(StmtKind::kFilter);
    tokens_.take();
    made.expr = expressions_.inline_filter();
    end_block();
    made.branches.push_back({nullptr, body({"endfilter"})});
    close("endfilter");
    return made;
  }

  Stmt generation() {
    Stmt made = start(StmtKind::kGeneration);
    tokens_.take();
    end_block();
    made.branches.push_back(outside_loops("endgeneration"));
    return made;
  }

  Stmt jump() {
    Stmt made = start(tokens_.is_name("break") ? StmtKind::kBreak : StmtKind::kContinue);
    if (loops_ == 0) tokens_.fail(concat("'", tokens_.now().text, "' outside of a loop"));
    tokens_.take();
    end_block();
    return made;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
  int conditions_ = 0;
};

}  // namespace

Document parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace tempera::text::jinja
