// Attributes, items and slices of values, and the functions that every template sees.
#include <algorithm>
#include <array>
#include <ctime>

#include "tempera/base/error.h"
#include "tempera/text/jinja/functions.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

std::string object_name(const Value& value) {
  return value.is_none() ? "None" : concat("'", value.type_name(), " object'");
}

Value missing(const Value& value, const std::string& name) {
  return Value::undefined(concat(object_name(value), " has no attribute ", repr(name)));
}

// An index as Python has it, from the end if negative.
std::optional<size_t> place(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < -count || index >= count) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + count : index);
}

bool indexable(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kList || sequence.kind == SequenceKind::kTuple ||
         sequence.kind == SequenceKind::kRange;
}

// value[key] alone; nothing where Python would raise.
std::optional<Value> own_item(const Value& value, const Value& key, Budget& budget) {
  if (const auto* dict = value.dict()) {
    const bool hashable = !key.is_undefined() && !key.dict() && !key.live() &&
                          !(key.sequence() && key.sequence()->kind != SequenceKind::kTuple);
    const Value* found = hashable ? dict->find(key) : nullptr;
    return found ? std::optional(*found) : std::nullopt;
  }
  const auto index = key.integer();
  if (!index) return std::nullopt;
  if (const auto* text = value.string()) {
    budget.bytes(text->size());
    const auto all = characters(*text);
    const auto at = place(*index, all.size());
    return at ? std::optional(Value::text(std::string(all[*at]), value.is_markup())) : std::nullopt;
  }
  if (const auto* sequence = value.sequence(); sequence && indexable(*sequence)) {
    const auto at = place(*index, sequence->items.size());
    return at ? std::optional(sequence->items[*at]) : std::nullopt;
  }
  return std::nullopt;
}

// value.name alone.
std::optional<Value> own_attribute(const Value& value, const std::string& name, Budget& budget) {
  TEMPERA_CHECK(!name.starts_with("__"), "the attribute '", name, "' is not supported");
  if (const auto* names = value.get<std::shared_ptr<Namespace>>()) {
    for (const auto& [key, held] : (*names)->attributes)
      if (key == name) return held;
    return std::nullopt;
  }
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) return (*loop)->attribute(name);
  return find_method(value, name, budget);
}

// The places that a slice visits, as Python computes them.
std::vector<size_t> slice_places(size_t size, const Value& begin, const Value& end,
                                 const Value& step_value) {
  const int64_t step = step_value.is_none() ? 1 : require_integer(step_value, "a slice's step");
  TEMPERA_CHECK(step != 0, "a slice's step is zero");
  const auto count = static_cast<int64_t>(size);
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? count : count - 1;
  const auto bound = [&](const Value& value, int64_t standard) {
    if (value.is_none()) return standard;
    int64_t at = require_integer(value, "a slice's bound");
    if (at < 0) at = at < -count ? lowest : at + count;
    return std::clamp(at, lowest, highest);
  };
  int64_t at = bound(begin, step > 0 ? 0 : count - 1);
  const int64_t stop = bound(end, step > 0 ? count : -1);
  std::vector<size_t> places;
  while (step > 0 ? at < stop : at > stop) {
    places.push_back(static_cast<size_t>(at));
    // The distance to the end is known to fit; the step may not.
    if (step > 0 ? step >= stop - at : step <= stop - at) break;
    at += step;
  }
  return places;
}

Value make_range(const Arguments& arguments, Budget& budget) {
  constexpr uint64_t kLongest = 100'000;  // the same as in Jinja's sandbox
  TEMPERA_CHECK(
      arguments.named.empty() && !arguments.positional.empty() && arguments.positional.size() <= 3,
      "range() takes one to three arguments without names");
  std::vector<int64_t> given;
  for (const Value& value : arguments.positional)
    given.push_back(require_integer(value, "an argument of range()"));
  const int64_t begin = given.size() == 1 ? 0 : given[0];
  const int64_t end = given.size() == 1 ? given[0] : given[1];
  const int64_t step = given.size() == 3 ? given[2] : 1;
  TEMPERA_CHECK(step != 0, "the step of range() is zero");
  const bool empty = step > 0 ? begin >= end : begin <= end;
  const auto distance = [](int64_t from, int64_t to) {
    return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  };
  const uint64_t width = step > 0 ? distance(begin, end) : distance(end, begin);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : distance(step, 0);
  const uint64_t count = empty ? 0 : (width - 1) / stride + 1;
  TEMPERA_CHECK(count <= kLongest, "range() of ", count, " items; at most ", kLongest);
  budget.steps(count);
  std::vector<Value> items;
  for (uint64_t i = 0; i < count; ++i)
    items.emplace_back(
        static_cast<int64_t>(static_cast<uint64_t>(begin) + i * static_cast<uint64_t>(step)));
  return Value::sequence(SequenceKind::kRange, std::move(items));
}

std::vector<std::pair<Value, Value>> dict_items(const Arguments& arguments, const char* function) {
  TEMPERA_CHECK(arguments.positional.size() <= 1, function, "() takes at most one argument");
  std::vector<std::pair<Value, Value>> items;
  if (!arguments.positional.empty()) {
    const Dict* given = arguments.positional[0].dict();
    TEMPERA_CHECK(given, function, "() of a value of the type ",
                  arguments.positional[0].type_name(), " is not supported; give a dict");
    items = given->items;
  }
  for (const auto& [name, value] : arguments.named) items.emplace_back(Value::text(name), value);
  return items;
}

Value make_namespace(const Arguments& arguments) {
  auto made = std::make_shared<Namespace>();
  const Value dict = Value::dict(dict_items(arguments, "namespace"));
  for (const auto& [key, value] : dict.dict()->items) {
    const auto& name = require_text(key, "a name in namespace()");
    TEMPERA_CHECK(!name.starts_with('_'), "namespace() with the attribute '", name,
                  "', which begins with an underscore");
    TEMPERA_CHECK(!value.live(), "a namespace cannot hold another one, a loop or a method");
    made->attributes.emplace_back(name, value);
  }
  return Value(std::move(made));
}

Value format_time(const Arguments& arguments, const std::optional<std::tm>& now) {
  const auto bound = bind(arguments, "strftime_now", {"format"});
  TEMPERA_CHECK(bound[0], "strftime_now() needs a format");
  const auto& format = require_text(*bound[0], "the format of strftime_now()");
  TEMPERA_CHECK(format.size() <= 256 && format.find('\0') == format.npos,
                "the format of strftime_now() is longer than 256 bytes or holds a zero byte");
  std::tm time{};
  if (now) {
    time = *now;
  } else {
    const std::time_t clock = std::time(nullptr);
    TEMPERA_CHECK(localtime_r(&clock, &time), "the local time is not known");
  }
  std::array<char, 8192> buffer{};
  // Zero stands for "does not fit" and for an empty result; the blank tells them apart.
  const size_t size = std::strftime(buffer.data(), buffer.size(), (format + " ").c_str(), &time);
  TEMPERA_CHECK(size > 0, "the result of strftime_now() is too long");
  std::string text(buffer.data(), size - 1);
  TEMPERA_CHECK(is_valid_utf8(text), "the result of strftime_now() is not UTF-8");
  return Value::text(std::move(text));
}

Value function(std::string name, std::function<Value(const Arguments&)> call) {
  return Value(std::make_shared<const Callable>(Callable{std::move(name), std::move(call)}));
}

}  // namespace

const std::string& require_text(const Value& value, std::string_view what) {
  require_defined(value);
  TEMPERA_CHECK(value.string(), what, " is a text, not a value of the type ", value.type_name());
  return *value.string();
}

int64_t require_integer(const Value& value, std::string_view what) {
  require_defined(value);
  TEMPERA_CHECK(value.integer(), what, " is a whole number, not a value of the type ",
                value.type_name());
  return *value.integer();
}

Value get_attribute(const Value& value, const std::string& name, Budget& budget) {
  require_defined(value);
  if (auto found = own_attribute(value, name, budget)) return *found;
  if (auto found = own_item(value, Value::text(name), budget)) return *found;
  return missing(value, name);
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  require_defined(value);
  if (auto found = own_item(value, key, budget)) return *found;
  if (!key.string())
    return Value::undefined(concat(object_name(value), " has no element ", to_repr(key, budget)));
  if (auto found = own_attribute(value, *key.string(), budget)) return *found;
  return missing(value, *key.string());
}

Value get_slice(const Value& value, const Value& begin, const Value& end, const Value& step,
                Budget& budget) {
  require_defined(value);
  if (const auto* text = value.string()) {
    budget.bytes(text->size());
    const auto all = characters(*text);
    std::string out;
    for (const size_t at : slice_places(all.size(), begin, end, step)) out += all[at];
    return Value::text(std::move(out), value.is_markup());
  }
  const auto* sequence = value.sequence();
  TEMPERA_CHECK(sequence && indexable(*sequence), object_name(value), " has no slices");
  std::vector<Value> items;
  budget.steps(sequence->items.size());
  for (const size_t at : slice_places(sequence->items.size(), begin, end, step))
    items.push_back(sequence->items[at]);
  return Value::sequence(sequence->kind, std::move(items));
}

std::optional<Value> find_global(std::string_view name, Budget& budget,
                                 const std::optional<std::tm>& now) {
  if (name == "range")
    return function("range", [&budget](const Arguments& a) { return make_range(a, budget); });
  if (name == "dict")
    return function("dict", [](const Arguments& a) { return Value::dict(dict_items(a, "dict")); });
  if (name == "namespace") return function("namespace", make_namespace);
  if (name == "raise_exception")
    return function("raise_exception", [&budget](const Arguments& arguments) -> Value {
      const auto bound = bind(arguments, "raise_exception", {"message"});
      throw Error(concat("the template refuses this: ",
                         bound[0] ? to_text(*bound[0], budget) : "no reason given"));
    });
  if (name == "strftime_now")
    return function("strftime_now", [&now](const Arguments& a) { return format_time(a, now); });
  TEMPERA_CHECK(name != "cycler" && name != "joiner" && name != "lipsum", "the function '", name,
                "' is not supported");
  return std::nullopt;
}

}  // namespace tempera::text::jinja
