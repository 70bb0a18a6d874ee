#include "tempera/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tempera/base/error.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

constexpr int kDeepestValue = 100;

// Depth and liveness of a container that holds the value.
void hold(const Value& value, int& depth, bool& live) {
  depth = std::max(depth, value.depth() + 1);
  live = live || value.live();
  TEMPERA_CHECK(depth <= kDeepestValue, "values nested deeper than ", kDeepestValue, " levels");
}

}  // namespace

void Budget::steps(size_t count) {
  // As unsigned numbers, since a count may be anything.
  TEMPERA_CHECK(left_ >= 0 && count <= static_cast<size_t>(left_), "the template takes more than ",
                limits_.steps, " steps");
  left_ -= static_cast<int64_t>(count);
}

void Budget::grow(size_t size, size_t more) {
  TEMPERA_CHECK(size <= limits_.output_bytes && more <= limits_.output_bytes - size,
                "the template makes a text of more than ", limits_.output_bytes, " bytes");
  bytes(more);
}

const Value* Dict::find(const Value& key) const {
  const auto place = places.find(key_text(key));
  return place == places.end() ? nullptr : &items[place->second].second;
}

Value Value::undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value Value::text(std::string text, bool markup) {
  return Value(std::make_shared<const String>(String{std::move(text), markup}));
}

Value Value::sequence(SequenceKind kind, std::vector<Value> items) {
  auto made = std::make_shared<Sequence>();
  made->kind = kind;
  for (const Value& item : items) hold(item, made->depth, made->live);
  made->items = std::move(items);
  return Value(std::shared_ptr<const Sequence>(std::move(made)));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  auto made = std::make_shared<Dict>();
  for (auto& item : items) {
    hold(item.first, made->depth, made->live);
    hold(item.second, made->depth, made->live);
    const auto [place, added] = made->places.emplace(key_text(item.first), made->items.size());
    if (added)
      made->items.push_back(std::move(item));
    else  // the place and the key of the first, the value of the last
      made->items[place->second].second = std::move(item.second);
  }
  return Value(std::shared_ptr<const Dict>(std::move(made)));
}

Value Value::from_json(const nlohmann::ordered_json& json, Budget& budget) {
  budget.steps(1);
  if (json.is_null()) return none();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    TEMPERA_CHECK(value <= INT64_MAX, "the number ", value, " is beyond 64 bits with a sign");
    return Value(static_cast<int64_t>(value));
  }
  if (json.is_number()) return Value(json.get<int64_t>());
  if (json.is_string()) {
    const auto& given = json.get_ref<const std::string&>();
    TEMPERA_CHECK(is_valid_utf8(given), "a text that is not UTF-8 is among the variables");
    budget.bytes(given.size());
    return text(given);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(from_json(item, budget));
    return sequence(SequenceKind::kList, std::move(items));
  }
  TEMPERA_CHECK(json.is_object(), "a variable is of the type ", json.type_name(),
                ", which a template cannot see");
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(from_json(nlohmann::ordered_json(key), budget), from_json(value, budget));
  return dict(std::move(items));
}

const std::string* Value::string() const {
  const auto* held = get<std::shared_ptr<const String>>();
  return held ? &(*held)->text : nullptr;
}

const Sequence* Value::sequence() const {
  const auto* held = get<std::shared_ptr<const Sequence>>();
  return held ? held->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* held = get<std::shared_ptr<const Dict>>();
  return held ? held->get() : nullptr;
}

bool Value::is_markup() const {
  const auto* held = get<std::shared_ptr<const String>>();
  return held && (*held)->markup;
}

std::optional<int64_t> Value::integer() const {
  if (const bool* value = get<bool>()) return *value ? 1 : 0;
  if (const int64_t* value = get<int64_t>()) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* value = get<double>()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

bool Value::live() const {
  if (const Sequence* held = sequence()) return held->live;
  if (const Dict* held = dict()) return held->live;
  if (const auto* held = get<std::shared_ptr<const Callable>>()) return (*held)->live;
  return get<std::shared_ptr<Namespace>>() || get<std::shared_ptr<Loop>>();
}

int Value::depth() const {
  if (const Sequence* held = sequence()) return held->depth;
  if (const Dict* held = dict()) return held->depth;
  return 0;
}

bool Value::truthy() const {
  if (const bool* value = get<bool>()) return *value;
  if (const auto value = number()) return *value != 0;
  if (const auto* value = string()) return !value->empty();
  if (const auto* value = sequence())
    return value->kind == SequenceKind::kGenerator || !value->items.empty();
  if (const auto* value = dict()) return !value->items.empty();
  return !is_undefined() && !is_none();
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (get<bool>()) return "bool";
  if (get<int64_t>()) return "int";
  if (get<double>()) return "float";
  if (string()) return "str";
  if (dict()) return "dict";
  if (get<std::shared_ptr<Namespace>>()) return "Namespace";
  if (get<std::shared_ptr<Loop>>()) return "LoopContext";
  if (const Sequence* held = sequence()) switch (held->kind) {
      case SequenceKind::kList:
        return "list";
      case SequenceKind::kTuple:
        return "tuple";
      case SequenceKind::kRange:
        return "range";
      case SequenceKind::kKeys:
        return "dict_keys";
      case SequenceKind::kValues:
        return "dict_values";
      case SequenceKind::kItems:
        return "dict_items";
      case SequenceKind::kGenerator:
        return "generator";
    }
  return "function";
}

std::vector<std::optional<Value>> bind(const Arguments& arguments, std::string_view function,
                                       std::initializer_list<std::string_view> parameters) {
  TEMPERA_CHECK(arguments.positional.size() <= parameters.size(), function, "() takes at most ",
                parameters.size(), " arguments, not ", arguments.positional.size());
  std::vector<std::optional<Value>> bound(parameters.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    TEMPERA_CHECK(found != parameters.end(), function, "() has no argument '", name, "'");
    auto& place = bound[static_cast<size_t>(found - parameters.begin())];
    TEMPERA_CHECK(!place, function, "() is given the argument '", name, "' twice");
    place = value;
  }
  return bound;
}

std::string key_text(const Value& key) {
  if (const std::string* text = key.string()) return concat("s", *text);
  if (const auto value = key.integer()) return concat("n", *value);
  if (const double* value = key.get<double>()) {
    // A float that is a whole number is the same key as the int.
    if (std::trunc(*value) == *value && std::abs(*value) < 9e15)
      return concat("n", static_cast<int64_t>(*value));
    return concat("f", repr(*value));
  }
  if (key.is_none()) return "none";
  const Sequence* tuple = key.sequence();
  TEMPERA_CHECK(tuple && tuple->kind == SequenceKind::kTuple, "a ", key.type_name(),
                " cannot be a key of a dict");
  std::string all = "t";
  for (const Value& item : tuple->items) {
    const std::string part = key_text(item);
    all += concat(part.size(), ":", part);
    TEMPERA_CHECK(all.size() <= 65536,
                  "a tuple of more than 65536 bytes cannot be a key of a dict");
  }
  return all;
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const auto* text = value.string()) return static_cast<int64_t>(text_length(*text));
  if (const auto* held = value.dict()) return static_cast<int64_t>(held->items.size());
  if (const auto* held = value.sequence(); held && held->kind != SequenceKind::kGenerator)
    return static_cast<int64_t>(held->items.size());
  return std::nullopt;
}

std::vector<Value> iterate(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const auto* text = value.string()) {
    budget.steps(text->size());
    for (const auto character : characters(*text))
      items.push_back(Value::text(std::string(character)));
  } else if (const auto* held = value.dict()) {
    budget.steps(held->items.size());
    for (const auto& item : held->items) items.push_back(item.first);
  } else if (const auto* sequence = value.sequence()) {
    budget.steps(sequence->items.size());
    if (sequence->consumed) return items;
    sequence->consumed = sequence->kind == SequenceKind::kGenerator;
    items = sequence->items;
  } else {
    throw Error(concat("a value of the type ", value.type_name(), " has no items to go through"));
  }
  return items;
}

void require_defined(const Value& value) {
  if (const auto* undefined = value.get<Undefined>())
    throw Error(undefined->why ? *undefined->why : "a value is undefined");
}

}  // namespace tempera::text::jinja
