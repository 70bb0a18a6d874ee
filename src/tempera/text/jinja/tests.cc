// What stands behind `is`.
#include <algorithm>
#include <map>

#include "tempera/base/error.h"
#include "tempera/text/jinja/functions.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

struct Question {
  const Value& value;
  const Value* other;  // the argument of tests that have one
  Budget& budget;
};

struct Test {
  bool with_argument;
  bool (*ask)(const Question&);
};

bool is_true_or_false(const Question& q, bool wanted) {
  const bool* held = q.value.get<bool>();
  return held && *held == wanted;
}

bool has_items(const Question& q) {
  return q.value.is_undefined() || q.value.string() || q.value.dict() || q.value.sequence();
}

bool has_length_and_items(const Question& q) {
  const Sequence* held = q.value.sequence();
  const bool view = held && held->kind != SequenceKind::kList &&
                    held->kind != SequenceKind::kTuple && held->kind != SequenceKind::kRange;
  return has_items(q) && !view;
}

bool is_same_object(const Question& q) {
  const Value &a = q.value, &b = *q.other;
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.get<bool>() || b.get<bool>())
    return a.get<bool>() && b.get<bool>() && *a.get<bool>() == *b.get<bool>();
  throw Error("the test 'sameas' is supported for true, false and none only");
}

int64_t remainder(const Question& q, const Value& by) {
  const Value result = arithmetic("%", q.value, by, q.budget);
  TEMPERA_CHECK(result.integer(), "a test for divisibility of a float is not supported");
  return *result.integer();
}

// Some letters, and all of them of the one case.
bool has_case(const Question& q, bool wanted_upper) {
  const std::string text = to_text(q.value, q.budget);
  return (wanted_upper ? upper(text) : lower(text)) == text &&
         (wanted_upper ? lower(text) : upper(text)) != text;
}

template <class Holds>
bool ordered(const Question& q, Holds holds) {
  return holds(compare(q.value, *q.other, q.budget));
}

bool is_equal(const Question& q) { return equal(q.value, *q.other, q.budget); }
bool is_unequal(const Question& q) { return !is_equal(q); }
bool is_below(const Question& q) {
  return ordered(q, [](int c) { return c < 0; });
}
bool is_at_most(const Question& q) {
  return ordered(q, [](int c) { return c <= 0; });
}
bool is_above(const Question& q) {
  return ordered(q, [](int c) { return c > 0; });
}
bool is_at_least(const Question& q) {
  return ordered(q, [](int c) { return c >= 0; });
}

const std::map<std::string, Test, std::less<>>& all_tests() {
  using Q = const Question&;
  static const std::map<std::string, Test, std::less<>> tests = {
      {"boolean", {false, [](Q q) { return q.value.get<bool>() != nullptr; }}},
      {"callable",
       {false,
        [](Q q) {  // an undefined value can be called too, to say that it is undefined
          return q.value.is_undefined() || q.value.get<std::shared_ptr<const Callable>>();
        }}},
      {"defined", {false, [](Q q) { return !q.value.is_undefined(); }}},
      {"divisibleby", {true, [](Q q) { return remainder(q, *q.other) == 0; }}},
      {"eq", {true, is_equal}},
      {"equalto", {true, is_equal}},
      {"even", {false, [](Q q) { return remainder(q, Value(int64_t{2})) == 0; }}},
      {"false", {false, [](Q q) { return is_true_or_false(q, false); }}},
      {"float", {false, [](Q q) { return q.value.get<double>() != nullptr; }}},
      {"ge", {true, is_at_least}},
      {"greaterthan", {true, is_above}},
      {"gt", {true, is_above}},
      {"in", {true, [](Q q) { return contains(*q.other, q.value, q.budget); }}},
      {"integer", {false, [](Q q) { return q.value.get<int64_t>() != nullptr; }}},
      {"iterable", {false, has_items}},
      {"le", {true, is_at_most}},
      {"lessthan", {true, is_below}},
      {"lower", {false, [](Q q) { return has_case(q, false); }}},
      {"lt", {true, is_below}},
      {"mapping", {false, [](Q q) { return q.value.dict() != nullptr; }}},
      {"ne", {true, is_unequal}},
      {"none", {false, [](Q q) { return q.value.is_none(); }}},
      {"number", {false, [](Q q) { return q.value.number().has_value(); }}},
      {"odd", {false, [](Q q) { return remainder(q, Value(int64_t{2})) == 1; }}},
      {"sameas", {true, is_same_object}},
      {"sequence", {false, has_length_and_items}},
      {"string", {false, [](Q q) { return q.value.string() != nullptr; }}},
      {"true", {false, [](Q q) { return is_true_or_false(q, true); }}},
      {"undefined", {false, [](Q q) { return q.value.is_undefined(); }}},
      {"upper", {false, [](Q q) { return has_case(q, true); }}},
      // Names that only the filters select and reject can give.
      {"==", {true, is_equal}},
      {"!=", {true, is_unequal}},
      {"<", {true, is_below}},
      {"<=", {true, is_at_most}},
      {">", {true, is_above}},
      {">=", {true, is_at_least}},
  };
  return tests;
}

}  // namespace

const std::vector<std::string>& test_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, test] : all_tests()) all.push_back(name);
    return all;
  }();
  return names;
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments,
                Budget& budget) {
  budget.steps(1);
  const auto found = all_tests().find(name);
  TEMPERA_CHECK(found != all_tests().end(), "the test '", name, "' is not supported");
  const Test& test = found->second;
  TEMPERA_CHECK(
      arguments.named.empty() && arguments.positional.size() == (test.with_argument ? 1u : 0u),
      "the test '", name, "' takes ", test.with_argument ? "one argument" : "no argument", ", not ",
      arguments.positional.size() + arguments.named.size());
  return test.ask({value, test.with_argument ? &arguments.positional[0] : nullptr, budget});
}

}  // namespace tempera::text::jinja
