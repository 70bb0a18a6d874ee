#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tempera/text/jinja/template.h"

namespace tempera::text::jinja {

// What one rendering may still cost. Everything that makes text or visits items pays here.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits), left_(limits.steps) {}
  void steps(size_t count);
  void bytes(size_t count) { steps(1 + count / 16); }
  // Before a text is sought in another, at every place of which all of it may have to be compared.
  void search(size_t size, size_t sought) { bytes(sought > size ? 0 : size * (1 + sought / 256)); }
  // Before a text of `size` bytes grows by `more`.
  void grow(size_t size, size_t more);

 private:
  TemplateLimits limits_;
  int64_t left_;
};

class Value;
struct Arguments;

// A missing name or item: prints as nothing, and says why when it is used.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

struct String {
  std::string text;
  bool markup = false;  // the filter `safe`: text that is added to it is escaped
};

enum class SequenceKind { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;
  bool live = false;              // see Value::live()
  mutable bool consumed = false;  // a generator gives its items once
};

// Keys in the order of insertion. They are found by a text that is equal for equal keys.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, size_t> places;
  int depth = 1;
  bool live = false;

  const Value* find(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

struct Callable {
  std::string name;
  std::function<Value(const Arguments&)> call;
  bool live = false;
};

// The variable `loop`; the evaluator knows its attributes.
struct Loop {
  virtual ~Loop() = default;
  virtual Value attribute(std::string_view name) = 0;
};

class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, int64_t, double,
                               std::shared_ptr<const String>, std::shared_ptr<const Sequence>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                               std::shared_ptr<const Callable>, std::shared_ptr<Loop>>;

  Value() = default;
  template <class T>
    requires std::is_constructible_v<Storage, T>
  explicit Value(T value) : storage_(std::move(value)) {}
  static Value none() { return Value(None{}); }
  static Value undefined(std::string why);
  static Value text(std::string text, bool markup = false);
  // Throw where nesting gets too deep, or a key cannot be one.
  static Value sequence(SequenceKind kind, std::vector<Value> items);
  static Value dict(std::vector<std::pair<Value, Value>> items);
  static Value from_json(const nlohmann::ordered_json& json, Budget& budget);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&storage_);
  }
  const std::string* string() const;
  const Sequence* sequence() const;
  const Dict* dict() const;
  bool is_undefined() const { return get<Undefined>(); }
  bool is_none() const { return get<None>(); }
  bool is_markup() const;
  // An int or a bool, which Python takes for 0 or 1.
  std::optional<int64_t> integer() const;
  // An int, bool or float.
  std::optional<double> number() const;
  // Namespaces, and what may hold one: kept out of namespaces, so that no value holds itself.
  bool live() const;
  int depth() const;
  bool truthy() const;
  // As Python calls it.
  const char* type_name() const;

 private:
  Storage storage_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of the parameters; throws for one that is unknown, given twice or too
// many.
std::vector<std::optional<Value>> bind(const Arguments& arguments, std::string_view function,
                                       std::initializer_list<std::string_view> parameters);

// str() and repr().
std::string to_text(const Value& value, Budget& budget);
std::string to_repr(const Value& value, Budget& budget);

// A text equal for equal keys; throws if the value cannot be a key.
std::string key_text(const Value& key);

bool equal(const Value& a, const Value& b, Budget& budget);
// Below 0, 0 or above; throws if they have no order.
int compare(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// The items that a for loop would see; throws if there are none to be had.
std::vector<Value> iterate(const Value& value, Budget& budget);
// len(), or nothing if the value has no length.
std::optional<int64_t> length_of(const Value& value);

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

// Throws with the reason of an undefined value; nothing for others.
void require_defined(const Value& value);

}  // namespace tempera::text::jinja
