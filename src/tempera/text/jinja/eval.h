#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/jinja/ast.h"
#include "tempera/text/jinja/value.h"

namespace tempera::text::jinja {

// Variables of a block, and where to look for those that it has not. A macro keeps only a weak
// reference to the scope that it was defined in, which holds the macro.
struct Scope {
  std::shared_ptr<const Scope> parent;
  std::map<std::string, Value, std::less<>> variables;
};
using ScopePtr = std::shared_ptr<Scope>;

// Renders one document once.
class Evaluator {
 public:
  Evaluator(const TemplateLimits& limits, const RenderOptions& options)
      : options_(options), budget_(limits) {}

  Rendered run(const Document& document, const nlohmann::ordered_json& variables);
  // Where the evaluation is, or was when it threw.
  int line() const { return line_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class LoopItems;
  class Depth;

  Flow execute(const Body& body, const ScopePtr& scope);
  Flow execute(const Stmt& statement, const ScopePtr& scope);
  Flow execute_if(const Stmt& statement, const ScopePtr& scope);
  Flow execute_for(const Stmt& statement, const ScopePtr& scope);
  Flow execute_capture(const Stmt& statement, const ScopePtr& scope);
  Flow execute_filter(const Stmt& statement, const ScopePtr& scope);
  void execute_generation(const Stmt& statement, const ScopePtr& scope);
  void define_macro(const Stmt& statement, const ScopePtr& scope);
  Value call_macro(const Stmt& macro, const std::shared_ptr<const Scope>& parent,
                   const Arguments& arguments);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  void assign_attribute(const Target& target, const Value& value, const Scope& scope);
  void write(std::string_view text);
  // What the body writes.
  std::string capture(const Body& body, const ScopePtr& scope, Flow& flow);

  Value evaluate(const Expr& expr, const ScopePtr& scope);
  Value evaluate_operation(const Expr& expr, const ScopePtr& scope);
  Value evaluate_dict(const Expr& expr, const ScopePtr& scope);
  Value evaluate_slice(const Expr& expr, const ScopePtr& scope);
  Value evaluate_call(const Expr& expr, const ScopePtr& scope);
  Value evaluate_concat(const Expr& expr, const ScopePtr& scope);
  bool evaluate_compare(const Expr& expr, const ScopePtr& scope);
  // A chain of filters; `block` is what the first one gets where there is no value.
  Value evaluate_filter(const Expr& expr, const ScopePtr& scope, const Value* block);
  bool holds(std::string_view operation, const Value& a, const Value& b);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& items, size_t from,
                                  const ScopePtr& scope);
  Arguments arguments(const Expr& expr, const ScopePtr& scope);
  Value look_up(const std::string& name, const Scope& scope);

  RenderOptions options_;
  Budget budget_;
  Rendered rendered_;
  std::string* out_ = &rendered_.text;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace tempera::text::jinja
