// Statements.
#include "tempera/text/jinja/eval.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/jinja/eval_depth.h"
#include "tempera/text/jinja/functions.h"

namespace tempera::text::jinja {

// The items of a loop that pass its filter, found as late as Jinja finds them: the filter may
// depend on what the body does. Also the variable `loop`.
class Evaluator::LoopItems final : public Loop {
 public:
  using Filter = std::function<bool(const Value&)>;
  LoopItems(std::vector<Value> items, Filter filter)
      : items_(std::move(items)), filter_(std::move(filter)) {}

  // False at the end.
  bool advance() {
    if (!peek()) return false;
    previous_ = std::exchange(current_, std::move(ahead_.front()));
    ahead_.pop_front();
    ++index_;
    return true;
  }
  const Value& current() const { return current_; }

  // The filter and the items may hold what holds this; after the loop nobody needs them.
  void end() {
    filter_ = nullptr;
    items_.clear();
    ahead_.clear();
    current_ = previous_ = Value();
  }

  Value attribute(std::string_view name) override {
    if (name == "index") return Value(index_ + 1);
    if (name == "index0") return Value(index_);
    if (name == "first") return Value(index_ == 0);
    if (name == "last") return Value(!peek());
    if (name == "length") return Value(length());
    if (name == "revindex") return Value(length() - index_);
    if (name == "revindex0") return Value(length() - index_ - 1);
    if (name == "previtem")
      return index_ > 0 ? previous_ : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return peek() ? ahead_.front() : Value::undefined("there is no next item");
    if (name == "depth") return Value(int64_t{1});  // of recursion, which is not supported
    if (name == "depth0") return Value(int64_t{0});
    TEMPERA_CHECK(name != "cycle" && name != "changed", "'loop.", name, "' is not supported");
    return Value::undefined(concat("'loop' has no attribute '", name, "'"));
  }

 private:
  // Finds the next item, if there is one.
  bool peek() {
    while (ahead_.empty() && at_ < items_.size()) find_next();
    return !ahead_.empty();
  }
  void find_next() {
    Value item = std::move(items_[at_++]);
    if (!filter_ || filter_(item)) ahead_.push_back(std::move(item));
  }
  int64_t length() {
    while (at_ < items_.size()) find_next();
    return index_ + 1 + static_cast<int64_t>(ahead_.size());
  }

  std::vector<Value> items_;
  size_t at_ = 0;
  Filter filter_;
  std::deque<Value> ahead_;
  Value current_, previous_;
  int64_t index_ = -1;
};

Rendered Evaluator::run(const Document& document, const nlohmann::ordered_json& variables) {
  const auto context = std::make_shared<Scope>();
  for (const auto& [name, value] : variables.items())
    context->variables.emplace(name, Value::from_json(value, budget_));
  const auto root = std::make_shared<Scope>();
  root->parent = context;
  execute(document.body, root);
  return std::move(rendered_);
}

void Evaluator::write(std::string_view text) {
  budget_.grow(out_->size(), text.size());
  *out_ += text;
}

Evaluator::Flow Evaluator::execute(const Body& body, const ScopePtr& scope) {
  for (const Stmt& statement : body) {
    const Flow flow = execute(statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const Stmt& statement, const ScopePtr& scope) {
  const Depth depth(*this);
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kText:
      write(statement.text);
      break;
    case StmtKind::kOutput: {
      const Value value = evaluate(*statement.expr, scope);
      if (const auto* text = value.string())
        write(*text);
      else
        write(to_text(value, budget_));
      break;
    }
    case StmtKind::kIf:
      return execute_if(statement, scope);
    case StmtKind::kFor:
      return execute_for(statement, scope);
    case StmtKind::kSet:
      assign(statement.target, evaluate(*statement.expr, scope), scope);
      break;
    case StmtKind::kCapture:
      return execute_capture(statement, scope);
    case StmtKind::kMacro:
      define_macro(statement, scope);
      break;
    case StmtKind::kFilter:
      return execute_filter(statement, scope);
    case StmtKind::kGeneration:
      execute_generation(statement, scope);
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_if(const Stmt& statement, const ScopePtr& scope) {
  for (const Branch& branch : statement.branches)
    if (!branch.condition || evaluate(*branch.condition, scope).truthy())
      return execute(branch.body, scope);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_for(const Stmt& statement, const ScopePtr& scope) {
  const auto inner = [&] {
    auto made = std::make_shared<Scope>();
    made->parent = scope;
    return made;
  };
  LoopItems::Filter filter;
  if (statement.condition)
    filter = [this, &statement, inner](const Value& item) {
      const ScopePtr seen = inner();
      assign(statement.target, item, seen);
      return evaluate(*statement.condition, seen).truthy();
    };
  auto items = iterate(evaluate(*statement.expr, scope), budget_);
  const auto loop = std::make_shared<LoopItems>(std::move(items), std::move(filter));
  bool any = false;
  while (loop->advance()) {
    any = true;
    const ScopePtr seen = inner();
    seen->variables["loop"] = Value(std::shared_ptr<Loop>(loop));
    assign(statement.target, loop->current(), seen);
    if (execute(statement.branches[0].body, seen) == Flow::kBreak) break;
  }
  loop->end();
  if (!any && statement.branches.size() > 1) return execute(statement.branches[1].body, inner());
  return Flow::kNext;
}

std::string Evaluator::capture(const Body& body, const ScopePtr& scope, Flow& flow) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  try {
    flow = execute(body, inner);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return text;
}

Evaluator::Flow Evaluator::execute_capture(const Stmt& statement, const ScopePtr& scope) {
  Flow flow = Flow::kNext;
  Value value = Value::text(capture(statement.branches[0].body, scope, flow));
  if (flow != Flow::kNext) return flow;
  if (statement.expr) value = evaluate_filter(*statement.expr, scope, &value);
  assign(statement.target, value, scope);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_filter(const Stmt& statement, const ScopePtr& scope) {
  Flow flow = Flow::kNext;
  const Value text = Value::text(capture(statement.branches[0].body, scope, flow));
  if (flow == Flow::kNext) write(to_text(evaluate_filter(*statement.expr, scope, &text), budget_));
  return flow;
}

void Evaluator::execute_generation(const Stmt& statement, const ScopePtr& scope) {
  Flow flow = Flow::kNext;
  const std::string text = capture(statement.branches[0].body, scope, flow);
  // Inside a macro or a captured text nobody knows yet where the text will stand.
  if (out_ == &rendered_.text)
    rendered_.generated.push_back({rendered_.text.size(), rendered_.text.size() + text.size()});
  write(text);
}

void Evaluator::define_macro(const Stmt& statement, const ScopePtr& scope) {
  auto made = std::make_shared<Callable>();
  made->name = statement.text;
  made->call = [this, &statement,
                weak = std::weak_ptr<const Scope>(scope)](const Arguments& given) {
    const auto parent = weak.lock();
    TEMPERA_CHECK(parent, "the macro '", statement.text, "' is called outside of its block");
    return call_macro(statement, parent, given);
  };
  scope->variables[statement.text] = Value(std::shared_ptr<const Callable>(std::move(made)));
}

Value Evaluator::call_macro(const Stmt& macro, const std::shared_ptr<const Scope>& parent,
                            const Arguments& arguments) {
  const Depth depth(*this);
  TEMPERA_CHECK(arguments.positional.size() <= macro.parameters.size(), "the macro '", macro.text,
                "' takes at most ", macro.parameters.size(), " arguments, not ",
                arguments.positional.size());
  const auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    scope->variables[macro.parameters[i].name] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
    TEMPERA_CHECK(known, "the macro '", macro.text, "' has no argument '", name, "'");
    TEMPERA_CHECK(scope->variables.emplace(name, value).second, "the macro '", macro.text,
                  "' is given the argument '", name, "' twice");
  }
  for (const Parameter& parameter : macro.parameters) {
    if (scope->variables.contains(parameter.name)) continue;
    Value value = parameter.standard
                      ? evaluate(*parameter.standard, scope)
                      : Value::undefined(concat("parameter '", parameter.name, "' was not given"));
    scope->variables[parameter.name] = std::move(value);
  }
  Flow flow = Flow::kNext;
  return Value::text(capture(macro.branches[0].body, scope, flow));
}

void Evaluator::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.parts.empty()) {
    const auto items = iterate(value, budget_);
    TEMPERA_CHECK(items.size() == target.parts.size(), items.size(), " values for ",
                  target.parts.size(), " names");
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
  } else if (!target.attribute.empty()) {
    assign_attribute(target, value, *scope);
  } else {
    scope->variables[target.name] = value;
  }
}

void Evaluator::assign_attribute(const Target& target, const Value& value, const Scope& scope) {
  const Value held = look_up(target.name, scope);
  const auto* names = held.get<std::shared_ptr<Namespace>>();
  TEMPERA_CHECK(names, "'", target.name, ".", target.attribute,
                "' cannot be set: only a namespace() has attributes that can");
  TEMPERA_CHECK(!target.attribute.starts_with('_'), "'", target.name, ".", target.attribute,
                "' cannot be set: it begins with an underscore");
  TEMPERA_CHECK(!value.live(), "a namespace cannot hold another one, a loop or a method");
  for (auto& [name, attribute] : (*names)->attributes)
    if (name == target.attribute) {
      attribute = value;
      return;
    }
  (*names)->attributes.emplace_back(target.attribute, value);
}

}  // namespace tempera::text::jinja
