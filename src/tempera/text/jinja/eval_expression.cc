// Expressions.
#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/text/jinja/eval.h"
#include "tempera/text/jinja/eval_depth.h"
#include "tempera/text/jinja/functions.h"

namespace tempera::text::jinja {

Value Evaluator::look_up(const std::string& name, const Scope& scope) {
  for (const Scope* at = &scope; at; at = at->parent.get()) {
    const auto found = at->variables.find(name);
    if (found != at->variables.end()) return found->second;
  }
  if (auto found = find_global(name, budget_, options_.now)) return *found;
  return Value::undefined(concat("'", name, "' is undefined"));
}

Value Evaluator::evaluate(const Expr& expr, const ScopePtr& scope) {
  const Depth depth(*this);
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return look_up(expr.name, *scope);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = evaluate(*expr.items[0], scope);
      const bool decided = left.truthy() == (expr.kind == ExprKind::kOr);
      return decided ? left : evaluate(*expr.items[1], scope);
    }
    case ExprKind::kNot:
      return Value(!evaluate(*expr.items[0], scope).truthy());
    case ExprKind::kCondition:
      if (evaluate(*expr.items[0], scope).truthy()) return evaluate(*expr.items[1], scope);
      return expr.items[2] ? evaluate(*expr.items[2], scope)
                           : Value::undefined("an inline if without an else was false");
    default:
      return evaluate_operation(expr, scope);
  }
}

Value Evaluator::evaluate_operation(const Expr& expr, const ScopePtr& scope) {
  const auto item = [&](size_t i) {
    Value value = evaluate(*expr.items[i], scope);
    line_ = expr.line;
    return value;
  };
  switch (expr.kind) {
    case ExprKind::kList:
      return Value::sequence(SequenceKind::kList, evaluate_all(expr.items, 0, scope));
    case ExprKind::kTuple:
      return Value::sequence(SequenceKind::kTuple, evaluate_all(expr.items, 0, scope));
    case ExprKind::kDict:
      return evaluate_dict(expr, scope);
    case ExprKind::kGetattr:
      return get_attribute(item(0), expr.name, budget_);
    case ExprKind::kGetitem: {
      const Value value = item(0);
      return get_item(value, item(1), budget_);
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr, scope);
    case ExprKind::kCall:
      return evaluate_call(expr, scope);
    case ExprKind::kFilter:
      return evaluate_filter(expr, scope, nullptr);
    case ExprKind::kTest: {
      const Value value = item(0);
      const Arguments given = arguments(expr, scope);
      line_ = expr.line;
      return Value(apply_test(expr.name, value, given, budget_));
    }
    case ExprKind::kNegative:
      return negative(item(0));
    case ExprKind::kPositive:
      return positive(item(0));
    case ExprKind::kBinary: {
      const Value left = item(0);
      return arithmetic(expr.name, left, item(1), budget_);
    }
    case ExprKind::kConcat:
      return evaluate_concat(expr, scope);
    default:
      return Value(evaluate_compare(expr, scope));
  }
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExprPtr>& items, size_t from,
                                           const ScopePtr& scope) {
  std::vector<Value> values;
  for (size_t i = from; i < items.size(); ++i) values.push_back(evaluate(*items[i], scope));
  return values;
}

Value Evaluator::evaluate_dict(const Expr& expr, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    Value key = evaluate(*expr.items[i], scope);
    items.emplace_back(std::move(key), evaluate(*expr.items[i + 1], scope));
  }
  return Value::dict(std::move(items));
}

Value Evaluator::evaluate_slice(const Expr& expr, const ScopePtr& scope) {
  const auto part = [&](size_t i) {
    return expr.items[i] ? evaluate(*expr.items[i], scope) : Value::none();
  };
  const Value value = part(0), begin = part(1), end = part(2), step = part(3);
  line_ = expr.line;
  return get_slice(value, begin, end, step, budget_);
}

Arguments Evaluator::arguments(const Expr& expr, const ScopePtr& scope) {
  Arguments given;
  given.positional = evaluate_all(expr.items, 1, scope);
  for (const auto& [name, value] : expr.named)
    given.named.emplace_back(name, evaluate(*value, scope));
  return given;
}

Value Evaluator::evaluate_call(const Expr& expr, const ScopePtr& scope) {
  const Value callee = evaluate(*expr.items[0], scope);
  const Arguments given = arguments(expr, scope);
  line_ = expr.line;
  require_defined(callee);
  const auto* function = callee.get<std::shared_ptr<const Callable>>();
  TEMPERA_CHECK(function, "a value of the type ", callee.type_name(), " is not a function");
  return (*function)->call(given);
}

Value Evaluator::evaluate_concat(const Expr& expr, const ScopePtr& scope) {
  std::string text;
  for (const auto& item : expr.items) {
    const std::string part = to_text(evaluate(*item, scope), budget_);
    budget_.grow(text.size(), part.size());
    text += part;
  }
  return Value::text(std::move(text));
}

Value Evaluator::evaluate_filter(const Expr& expr, const ScopePtr& scope, const Value* block) {
  const Depth depth(*this);
  const ExprPtr& input = expr.items[0];
  const bool chained = block && input;  // only filters stand before one that a block goes through
  const Value value = !input    ? *block
                      : chained ? evaluate_filter(*input, scope, block)
                                : evaluate(*input, scope);
  const Arguments given = arguments(expr, scope);
  line_ = expr.line;
  return apply_filter(expr.name, value, given, budget_);
}

bool Evaluator::holds(std::string_view operation, const Value& a, const Value& b) {
  if (operation == "==") return equal(a, b, budget_);
  if (operation == "!=") return !equal(a, b, budget_);
  if (operation == "in") return contains(b, a, budget_);
  if (operation == "not in") return !contains(b, a, budget_);
  const int order = compare(a, b, budget_);
  if (operation == "<") return order < 0;
  if (operation == "<=") return order <= 0;
  return operation == ">" ? order > 0 : order >= 0;
}

bool Evaluator::evaluate_compare(const Expr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.items[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1], scope);
    line_ = expr.line;
    if (!holds(expr.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace tempera::text::jinja
