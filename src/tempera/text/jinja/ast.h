#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/text/jinja/value.h"

namespace tempera::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kConst,    // value
  kName,     // name
  kList,     // items
  kTuple,    // items
  kDict,     // items: key, value, key, value ...
  kGetattr,  // items[0].name
  kGetitem,  // items[0][items[1]]
  kSlice,    // items[0][items[1] : items[2] : items[3]], absent ones null
  kCall,     // items[0](items[1...], named)
  kFilter,   // items[0] | name(items[1...], named); items[0] is null where a block is filtered
  kTest,     // items[0] is name(items[1...])
  kNot,
  kNegative,
  kPositive,
  kBinary,   // items[0] name items[1], arithmetic
  kConcat,   // items joined by ~
  kCompare,  // items[0] operators[0] items[1] operators[1] ...
  kAnd,
  kOr,
  kCondition,  // items[1] if items[0] else items[2], which may be null
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> items;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> operators;
};

// What an assignment fills: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name;
  std::string attribute;  // of the namespace `name`, if not empty
  std::vector<Target> parts;
};

struct Stmt;
using Body = std::vector<Stmt>;

enum class StmtKind {
  kText,     // text
  kOutput,   // expr
  kIf,       // branches; the last has no condition if there is an else
  kFor,      // target in expr if condition: branches[0]; branches[1] if it has an else
  kSet,      // target = expr
  kCapture,  // target = branches[0], through the filters in expr, which may be null
  kMacro,    // text(parameters): branches[0]
  kFilter,   // branches[0] through the filters in expr
  kGeneration,
  kBreak,
  kContinue,
};

struct Branch {
  ExprPtr condition;
  Body body;
};

struct Parameter {
  std::string name;
  ExprPtr standard;  // null: none
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
};

struct Document {
  Body body;
};

}  // namespace tempera::text::jinja
