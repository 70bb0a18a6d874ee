// The methods of texts, lists and dicts.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <system_error>

#include "tempera/base/error.h"
#include "tempera/text/jinja/functions.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

using Bound = std::vector<std::optional<Value>>;

std::optional<std::string_view> optional_text(const std::optional<Value>& value,
                                              std::string_view what) {
  if (!value || value->is_none()) return std::nullopt;
  return require_text(*value, what);
}

const Value& required(const std::optional<Value>& value, std::string_view function) {
  TEMPERA_CHECK(value, function, "() needs an argument");
  return *value;
}

Value text_list(const std::vector<std::string_view>& parts, Budget& budget) {
  std::vector<Value> items;
  for (const auto part : parts) {
    budget.bytes(part.size());
    items.push_back(Value::text(std::string(part)));
  }
  return Value::sequence(SequenceKind::kList, std::move(items));
}

Value split_text(const std::string& text, const Arguments& arguments, bool from_right,
                 Budget& budget) {
  const auto bound = bind(arguments, "split", {"sep", "maxsplit"});
  const auto separator = optional_text(bound[0], "the separator of split()");
  const int64_t limit = bound[1] ? require_integer(*bound[1], "maxsplit") : -1;
  budget.search(text.size(), separator ? separator->size() : 0);
  return text_list(split(text, separator, limit, from_right), budget);
}

Value strip_text(const std::string& text, const Arguments& arguments, Side side, Budget& budget) {
  const auto bound = bind(arguments, "strip", {"chars"});
  budget.bytes(text.size());
  return Value::text(
      std::string(strip(text, side, optional_text(bound[0], "the argument of strip()"))));
}

// startswith and endswith take one text or a tuple of them.
Value has_affix(const std::string& text, const Arguments& arguments, bool at_end, Budget& budget) {
  const char* function = at_end ? "endswith" : "startswith";
  const auto bound = bind(arguments, function, {"affix"});
  const Value& affix = required(bound[0], function);
  const auto matches = [&](const Value& value) {
    const auto& part = require_text(value, concat("the argument of ", function, "()"));
    budget.bytes(part.size());
    return at_end ? text.ends_with(part) : text.starts_with(part);
  };
  const Sequence* tuple = affix.sequence();
  if (!tuple || tuple->kind != SequenceKind::kTuple) return Value(matches(affix));
  return Value(std::any_of(tuple->items.begin(), tuple->items.end(), matches));
}

Value find_text(const std::string& text, const Arguments& arguments, bool last, Budget& budget) {
  const auto bound = bind(arguments, "find", {"sub"});
  const auto& sought = require_text(required(bound[0], "find"), "the argument of find()");
  budget.search(text.size(), sought.size());
  const size_t at = last ? text.rfind(sought) : text.find(sought);
  if (at == text.npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(text_length(std::string_view(text).substr(0, at))));
}

Value count_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  const auto bound = bind(arguments, "count", {"sub"});
  const auto& sought = require_text(required(bound[0], "count"), "the argument of count()");
  budget.search(text.size(), sought.size());
  if (sought.empty()) return Value(static_cast<int64_t>(text_length(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(sought); at != text.npos; at = text.find(sought, at + sought.size()))
    ++count;
  return Value(count);
}

Value replace_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  const auto bound = bind(arguments, "replace", {"old", "new", "count"});
  TEMPERA_CHECK(bound[0] && bound[1], "replace() needs two arguments");
  Arguments rest;
  rest.positional = {Value::text(require_text(*bound[0], "the first argument of replace()")),
                     Value::text(require_text(*bound[1], "the second argument of replace()"))};
  if (bound[2]) rest.positional.push_back(*bound[2]);
  return apply_filter("replace", Value::text(text), rest, budget);
}

Value join_items(const std::string& text, const Arguments& arguments, Budget& budget) {
  const auto bound = bind(arguments, "join", {"iterable"});
  std::string out;
  const auto items = iterate(required(bound[0], "join"), budget);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& item = require_text(items[i], "an item of join()");
    budget.grow(out.size(), item.size() + text.size());
    if (i > 0) out += text;
    out += item;
  }
  return Value::text(std::move(out));
}

Value cut_affix(const std::string& text, const Arguments& arguments, bool at_end) {
  const auto bound = bind(arguments, at_end ? "removesuffix" : "removeprefix", {"affix"});
  const auto& affix =
      require_text(required(bound[0], "removeprefix"), "the argument of removeprefix()");
  if (at_end)
    return Value::text(text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
  return Value::text(text.starts_with(affix) ? text.substr(affix.size()) : text);
}

// "{}", "{0}" and "{name}"; conversions and formats are refused.
Value format_text(const std::string& text, const Arguments& arguments, Budget& budget) {
  std::string out;
  size_t automatic = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    budget.grow(out.size(), brace - at);
    out.append(text, at, brace - at);
    at = brace;
    if (at == text.size()) break;
    if (at + 1 < text.size() && text[at + 1] == text[at]) {
      out += text[at];
      at += 2;
      continue;
    }
    const size_t close = text.find('}', at);
    TEMPERA_CHECK(text[at] == '{' && close != text.npos, "format(): a single brace in ",
                  repr(text));
    const std::string field = text.substr(at + 1, close - at - 1);
    const Value* value = nullptr;
    size_t index = automatic;
    const auto number = std::from_chars(field.data(), field.data() + field.size(), index);
    const bool indexed =
        field.empty() || (number.ec == std::errc() && number.ptr == field.data() + field.size());
    if (field.empty()) ++automatic;
    if (indexed && index < arguments.positional.size()) value = &arguments.positional[index];
    for (const auto& [name, given] : arguments.named)
      if (name == field) value = &given;
    TEMPERA_CHECK(value, "format(): the field '{", field,
                  "}' has no argument of that name, or is of a kind that is not supported");
    const std::string part = to_text(*value, budget);
    budget.grow(out.size(), part.size());
    out += part;
    at = close + 1;
  }
  return Value::text(std::move(out));
}

using TextMethod = Value (*)(const std::string&, const Arguments&, Budget&);

template <std::string (*Function)(std::string_view)>
Value changed_case(const std::string& text, const Arguments& arguments, Budget& budget) {
  bind(arguments, "a method that changes the case", {});
  budget.bytes(text.size());
  return Value::text(Function(text));
}

const std::map<std::string, TextMethod, std::less<>>& text_methods() {
  using Text = const std::string&;
  using Given = const Arguments&;
  static const std::map<std::string, TextMethod, std::less<>> methods = {
      {"capitalize", changed_case<capitalize>},
      {"count", count_text},
      {"endswith", [](Text t, Given a, Budget& b) { return has_affix(t, a, true, b); }},
      {"find", [](Text t, Given a, Budget& b) { return find_text(t, a, false, b); }},
      {"format", format_text},
      {"join", join_items},
      {"lower", changed_case<lower>},
      {"lstrip", [](Text t, Given a, Budget& b) { return strip_text(t, a, Side::kLeft, b); }},
      {"removeprefix", [](Text t, Given a, Budget&) { return cut_affix(t, a, false); }},
      {"removesuffix", [](Text t, Given a, Budget&) { return cut_affix(t, a, true); }},
      {"replace", replace_text},
      {"rfind", [](Text t, Given a, Budget& b) { return find_text(t, a, true, b); }},
      {"rsplit", [](Text t, Given a, Budget& b) { return split_text(t, a, true, b); }},
      {"rstrip", [](Text t, Given a, Budget& b) { return strip_text(t, a, Side::kRight, b); }},
      {"split", [](Text t, Given a, Budget& b) { return split_text(t, a, false, b); }},
      {"splitlines",
       [](Text t, Given a, Budget& b) {
         const auto bound = bind(a, "splitlines", {"keepends"});
         return text_list(split_lines(t, bound[0] && bound[0]->truthy()), b);
       }},
      {"startswith", [](Text t, Given a, Budget& b) { return has_affix(t, a, false, b); }},
      {"strip", [](Text t, Given a, Budget& b) { return strip_text(t, a, Side::kBoth, b); }},
      {"title", changed_case<title>},
      {"upper", changed_case<upper>},
  };
  return methods;
}

Value dict_method(const Value& value, const std::string& name, const Arguments& arguments,
                  Budget& budget) {
  const Dict& dict = *value.dict();
  budget.steps(dict.items.size());
  if (name == "get") {
    const auto bound = bind(arguments, "get", {"key", "default"});
    const Value& key = required(bound[0], "get");
    const Value* found = key.is_undefined() ? nullptr : dict.find(key);
    return found ? *found : bound[1].value_or(Value::none());
  }
  bind(arguments, name, {});
  if (name == "copy") return value;
  std::vector<Value> items;
  for (const auto& [key, held] : dict.items)
    items.push_back(name == "keys"     ? key
                    : name == "values" ? held
                                       : Value::sequence(SequenceKind::kTuple, {key, held}));
  const auto kind = name == "keys"     ? SequenceKind::kKeys
                    : name == "values" ? SequenceKind::kValues
                                       : SequenceKind::kItems;
  return Value::sequence(kind, std::move(items));
}

Value list_method(const Value& value, const std::string& name, const Arguments& arguments,
                  Budget& budget) {
  const auto& items = value.sequence()->items;
  if (name == "copy") {
    bind(arguments, name, {});
    return value;
  }
  const auto bound = bind(arguments, name, {"value"});
  const Value& sought = required(bound[0], name);
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equal(items[i], sought, budget)) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  TEMPERA_CHECK(name == "count", to_repr(sought, budget), " is not in the list");
  return Value(count);
}

enum class Access { kAllowed, kChanges, kUnsupported, kUnknown };

template <size_t N>
bool among(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Access text_access(const std::string& name) {
  constexpr std::array<std::string_view, 27> kOthers = {
      "casefold", "center",    "encode",      "expandtabs", "format_map", "index",
      "isalnum",  "isalpha",   "isascii",     "isdigit",    "isdecimal",  "isidentifier",
      "islower",  "isnumeric", "isprintable", "isspace",    "istitle",    "isupper",
      "ljust",    "maketrans", "partition",   "rindex",     "rjust",      "rpartition",
      "swapcase", "translate", "zfill"};
  if (text_methods().contains(name)) return Access::kAllowed;
  return among(name, kOthers) ? Access::kUnsupported : Access::kUnknown;
}

Access dict_access(const std::string& name) {
  if (among<5>(name, {"get", "items", "keys", "values", "copy"})) return Access::kAllowed;
  if (among<5>(name, {"clear", "pop", "popitem", "setdefault", "update"})) return Access::kChanges;
  return name == "fromkeys" ? Access::kUnsupported : Access::kUnknown;
}

Access sequence_access(const Sequence& sequence, const std::string& name) {
  const bool list = sequence.kind == SequenceKind::kList;
  const bool tuple = sequence.kind == SequenceKind::kTuple;
  if ((list || tuple) && (name == "index" || name == "count")) return Access::kAllowed;
  if (list && name == "copy") return Access::kAllowed;
  if (list &&
      among<8>(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}))
    return Access::kChanges;
  const bool view = !list && !tuple;
  return view && among<9>(name, {"start", "stop", "step", "index", "count", "mapping", "isdisjoint",
                                 "send", "close"})
             ? Access::kUnsupported
             : Access::kUnknown;
}

Access access(const Value& value, const std::string& name) {
  if (value.string()) return text_access(name);
  if (value.dict()) return dict_access(name);
  if (value.sequence()) return sequence_access(*value.sequence(), name);
  const bool number =
      value.number() && among<8>(name, {"real", "imag", "numerator", "denominator", "conjugate",
                                        "bit_length", "is_integer", "as_integer_ratio"});
  return number ? Access::kUnsupported : Access::kUnknown;
}

}  // namespace

std::optional<Value> find_method(const Value& value, const std::string& name, Budget& budget) {
  const Access allowed = access(value, name);
  if (allowed == Access::kUnknown) return std::nullopt;
  TEMPERA_CHECK(allowed != Access::kUnsupported, "the method '", name, "' of a ", value.type_name(),
                " is not supported");
  if (allowed == Access::kChanges)
    return Value::undefined(concat("the method '", name, "' would change a ", value.type_name(),
                                   ", which a template may not do"));
  TEMPERA_CHECK(!value.is_markup(), "the method '", name,
                "' of a text from the filter 'safe' is not supported");
  auto made = std::make_shared<Callable>();
  made->name = name;
  made->live = true;
  made->call = [value, name, &budget](const Arguments& arguments) {
    if (const auto* text = value.string())
      return text_methods().find(name)->second(*text, arguments, budget);
    if (value.dict()) return dict_method(value, name, arguments, budget);
    return list_method(value, name, arguments, budget);
  };
  return Value(std::shared_ptr<const Callable>(std::move(made)));
}

}  // namespace tempera::text::jinja
