#include "tempera/text/jinja/sequence_filters.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <unordered_set>

#include "tempera/base/error.h"
#include "tempera/text/jinja/functions.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

Value generator(std::vector<Value> items) {
  return Value::sequence(SequenceKind::kGenerator, std::move(items));
}

// "a.b.0": what is found step by step; the value itself without a path.
Value follow(Value value, const std::optional<Value>& path, Budget& budget) {
  if (!path || path->is_none()) return value;
  if (path->integer()) return get_item(value, *path, budget);
  for (const auto part : split(require_text(*path, "an attribute"), ".", -1, false)) {
    int64_t index = 0;
    const auto end = part.data() + part.size();
    const auto read = std::from_chars(part.data(), end, index);
    const bool number = read.ec == std::errc() && read.ptr == end && part.front() != '-';
    value = get_item(value, number ? Value(index) : Value::text(std::string(part)), budget);
  }
  return value;
}

// How sort, unique, min, max and dictsort see a value: without the case of letters, unless told.
Value without_case(const Value& value, bool case_sensitive) {
  return value.string() && !case_sensitive ? Value::text(lower(*value.string())) : value;
}

bool flag(const std::optional<Value>& value) { return value && value->truthy(); }

void sort_by(std::vector<std::pair<Value, Value>>& keyed, bool reverse, Budget& budget) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int order = compare(a.first, b.first, budget);
    return reverse ? order > 0 : order < 0;
  });
}

Value values_of(std::vector<std::pair<Value, Value>> keyed) {
  std::vector<Value> items;
  for (auto& item : keyed) items.push_back(std::move(item.second));
  return Value::sequence(SequenceKind::kList, std::move(items));
}

Value sorted(const FilterCall& call) {
  const auto bound = bind(call.arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  if (bound[2] && bound[2]->string())
    TEMPERA_CHECK(bound[2]->string()->find(',') == std::string::npos,
                  "sort by several attributes is not supported");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : iterate(call.value, call.budget)) {
    Value key = without_case(follow(item, bound[2], call.budget), flag(bound[1]));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by(keyed, flag(bound[0]), call.budget);
  return values_of(std::move(keyed));
}

Value dictsort(const FilterCall& call) {
  const auto bound = bind(call.arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  require_defined(call.value);
  TEMPERA_CHECK(call.value.dict(), "dictsort needs a dict, not a ", call.value.type_name());
  const std::string by = bound[1] ? require_text(*bound[1], "by") : "key";
  TEMPERA_CHECK(by == "key" || by == "value", "dictsort by '", by, "'; expected 'key' or 'value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : call.value.dict()->items)
    keyed.emplace_back(without_case(by == "key" ? key : value, flag(bound[0])),
                       Value::sequence(SequenceKind::kTuple, {key, value}));
  sort_by(keyed, flag(bound[2]), call.budget);
  return values_of(std::move(keyed));
}

Value unique(const FilterCall& call) {
  const auto bound = bind(call.arguments, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> items;
  std::unordered_set<std::string> keys;
  for (Value& item : iterate(call.value, call.budget)) {
    const Value key = without_case(follow(item, bound[1], call.budget), flag(bound[0]));
    if (keys.insert(key_text(key)).second) items.push_back(std::move(item));
  }
  return generator(std::move(items));
}

Value extreme(const FilterCall& call) {
  const auto bound = bind(call.arguments, call.name, {"case_sensitive", "attribute"});
  const auto items = iterate(call.value, call.budget);
  if (items.empty()) return Value::undefined("no item: the sequence was empty");
  const bool greatest = call.name == "max";
  const auto key = [&](const Value& item) {
    return without_case(follow(item, bound[1], call.budget), flag(bound[0]));
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int order = compare(key(items[i]), key(items[best]), call.budget);
    if (greatest ? order > 0 : order < 0) best = i;
  }
  return items[best];
}

Value sum(const FilterCall& call) {
  const auto bound = bind(call.arguments, "sum", {"attribute", "start"});
  Value total = bound[1].value_or(Value(int64_t{0}));
  TEMPERA_CHECK(!total.string(), "the filter 'sum' does not add texts; use 'join'");
  for (const Value& item : iterate(call.value, call.budget))
    total = arithmetic("+", total, follow(item, bound[0], call.budget), call.budget);
  return total;
}

Value first(const FilterCall& call) {
  bind(call.arguments, "first", {});
  const auto items = iterate(call.value, call.budget);
  return items.empty() ? Value::undefined("no first item: the sequence was empty") : items.front();
}

Value last(const FilterCall& call) {
  bind(call.arguments, "last", {});
  const Sequence* held = call.value.sequence();
  TEMPERA_CHECK(!held || held->kind != SequenceKind::kGenerator,
                "the filter 'last' of a generator; use 'list' first");
  const auto items = iterate(call.value, call.budget);
  return items.empty() ? Value::undefined("no last item: the sequence was empty") : items.back();
}

Value list(const FilterCall& call) {
  bind(call.arguments, "list", {});
  return Value::sequence(SequenceKind::kList, iterate(call.value, call.budget));
}

Value reverse(const FilterCall& call) {
  bind(call.arguments, "reverse", {});
  auto items = iterate(call.value, call.budget);
  std::reverse(items.begin(), items.end());
  if (!call.value.string()) return generator(std::move(items));
  std::string text;
  for (const Value& item : items) text += *item.string();
  return Value::text(std::move(text));
}

Value join(const FilterCall& call) {
  const auto bound = bind(call.arguments, "join", {"d", "attribute"});
  const std::string between = bound[0] ? to_text(*bound[0], call.budget) : "";
  const auto items = iterate(call.value, call.budget);
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string part = to_text(follow(items[i], bound[1], call.budget), call.budget);
    call.budget.grow(out.size(), part.size() + between.size());
    if (i > 0) out += between;
    out += part;
  }
  return Value::text(std::move(out));
}

Value items(const FilterCall& call) {
  bind(call.arguments, "items", {});
  std::vector<Value> pairs;
  if (call.value.is_undefined()) return generator({});
  TEMPERA_CHECK(call.value.dict(), "the filter 'items' needs a dict, not a ",
                call.value.type_name());
  call.budget.steps(call.value.dict()->items.size());
  for (const auto& [key, value] : call.value.dict()->items)
    pairs.push_back(Value::sequence(SequenceKind::kTuple, {key, value}));
  return generator(std::move(pairs));
}

// What map, select and their like go through: nothing for none, zero and the like too.
std::vector<Value> items_if_any(const FilterCall& call) {
  return call.value.truthy() ? iterate(call.value, call.budget) : std::vector<Value>();
}

// The arguments behind the first `count`.
Arguments behind(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value map_by_attribute(const FilterCall& call) {
  const auto bound = bind(call.arguments, "map", {"attribute", "default"});
  std::vector<Value> out;
  for (const Value& item : items_if_any(call)) {
    Value value = follow(item, bound[0], call.budget);
    if (value.is_undefined() && bound[1]) value = *bound[1];
    out.push_back(std::move(value));
  }
  return generator(std::move(out));
}

Value map(const FilterCall& call) {
  if (call.arguments.positional.empty()) return map_by_attribute(call);
  const auto& name = require_text(call.arguments.positional[0], "the filter that map applies");
  const Arguments rest = behind(call.arguments, 1);
  std::vector<Value> out;
  for (const Value& item : items_if_any(call))
    out.push_back(apply_filter(name, item, rest, call.budget));
  return generator(std::move(out));
}

// select, reject, selectattr and rejectattr: the items of which a test, or their truth, is so.
Value choose(const FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr");
  const bool wanted = call.name.starts_with("select");
  const size_t test_at = by_attribute ? 1 : 0;
  const auto& given = call.arguments.positional;
  TEMPERA_CHECK(given.size() >= test_at, "the filter '", call.name, "' needs an attribute");
  const bool tested = given.size() > test_at;
  const std::string test = tested ? require_text(given[test_at], "the test of a filter") : "";
  const Arguments rest = behind(call.arguments, tested ? test_at + 1 : given.size());
  std::vector<Value> out;
  for (Value& item : items_if_any(call)) {
    const Value seen =
        follow(item, by_attribute ? std::optional(given[0]) : std::nullopt, call.budget);
    const bool holds = tested ? apply_test(test, seen, rest, call.budget) : seen.truthy();
    if (holds == wanted) out.push_back(std::move(item));
  }
  return generator(std::move(out));
}

}  // namespace

std::vector<std::pair<std::string, Value (*)(const FilterCall&)>> sequence_filters() {
  return {{"dictsort", dictsort}, {"first", first},       {"items", items},
          {"join", join},         {"last", last},         {"list", list},
          {"map", map},           {"max", extreme},       {"min", extreme},
          {"reject", choose},     {"rejectattr", choose}, {"reverse", reverse},
          {"select", choose},     {"selectattr", choose}, {"sort", sorted},
          {"sum", sum},           {"unique", unique}};
}

}  // namespace tempera::text::jinja
