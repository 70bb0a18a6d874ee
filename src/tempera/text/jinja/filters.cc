// What stands behind '|'.
#include <algorithm>
#include <cmath>
#include <map>

#include "tempera/base/error.h"
#include "tempera/text/jinja/functions.h"
#include "tempera/text/jinja/sequence_filters.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

Value text_result(std::string text, Budget& budget, bool markup = false) {
  budget.grow(0, text.size());
  return Value::text(std::move(text), markup);
}

template <std::string (*Function)(std::string_view)>
Value changed(const FilterCall& call) {
  bind(call.arguments, call.name, {});
  return text_result(Function(to_text(call.value, call.budget)), call.budget,
                     call.value.is_markup());
}

Value titled(const FilterCall& call) {
  bind(call.arguments, "title", {});
  return text_result(title_words(to_text(call.value, call.budget)), call.budget);
}

Value trim(const FilterCall& call) {
  const auto bound = bind(call.arguments, "trim", {"chars"});
  std::optional<std::string_view> chars;
  if (bound[0] && !bound[0]->is_none()) chars = require_text(*bound[0], "the argument of trim");
  const std::string text = to_text(call.value, call.budget);
  return text_result(std::string(strip(text, Side::kBoth, chars)), call.budget,
                     call.value.is_markup());
}

Value replaced(const FilterCall& call) {
  const auto bound = bind(call.arguments, "replace", {"old", "new", "count"});
  TEMPERA_CHECK(bound[0] && bound[1], "replace needs two arguments");
  const std::string text = to_text(call.value, call.budget);
  const std::string from = to_text(*bound[0], call.budget), to = to_text(*bound[1], call.budget);
  const int64_t limit = bound[2] && !bound[2]->is_none() ? require_integer(*bound[2], "count") : -1;
  call.budget.search(text.size(), from.size());
  // The most that it can grow to, before it does.
  const size_t places = text.size() / std::max<size_t>(from.size(), 1) + 1;
  const size_t grown =
      to.size() == 0 ? 0 : std::min(places, (size_t{1} << 40) / to.size()) * to.size();
  if (grown > text.size() + (size_t{1} << 20)) call.budget.bytes(grown);
  return text_result(replace(text, from, to, limit), call.budget);
}

Value safe(const FilterCall& call) {
  bind(call.arguments, "safe", {});
  return Value::text(to_text(call.value, call.budget), /*markup=*/true);
}

Value escape(const FilterCall& call) {
  bind(call.arguments, "escape", {});
  const std::string text = to_text(call.value, call.budget);
  return Value::text(call.value.is_markup() ? text : escape_html(text), /*markup=*/true);
}

Value string(const FilterCall& call) {
  bind(call.arguments, "string", {});
  return call.value.string() ? call.value
                             : text_result(to_text(call.value, call.budget), call.budget);
}

Value indent(const FilterCall& call) {
  const auto bound = bind(call.arguments, "indent", {"width", "first", "blank"});
  std::string margin(4, ' ');
  if (bound[0] && bound[0]->string()) {
    margin = *bound[0]->string();
  } else if (bound[0]) {
    const int64_t width = require_integer(*bound[0], "the width of indent");
    TEMPERA_CHECK(width <= 4096, "indent by ", width, " blanks; at most 4096");
    margin.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = bound[1] && bound[1]->truthy(), blank = bound[2] && bound[2]->truthy();
  const std::string text = require_text(call.value, "the value of indent") + "\n";
  std::string out;
  if (first) out = margin;
  const auto lines = split_lines(text, /*keep_ends=*/false);
  for (size_t i = 0; i < lines.size(); ++i) {
    call.budget.grow(out.size(), lines[i].size() + margin.size() + 1);
    if (i > 0) out += "\n";
    if (i > 0 && (blank || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return Value::text(std::move(out));
}

Value default_value(const FilterCall& call) {
  const auto bound = bind(call.arguments, "default", {"default_value", "boolean"});
  const bool falsy_too = bound[1] && bound[1]->truthy();
  const bool replaced = call.value.is_undefined() || (falsy_too && !call.value.truthy());
  return replaced ? bound[0].value_or(Value::text("")) : call.value;
}

Value json(const FilterCall& call) {
  const auto bound =
      bind(call.arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = bound[0] && bound[0]->truthy();
  style.sort_keys = bound[3] && bound[3]->truthy();
  if (bound[1] && bound[1]->string()) style.indent = *bound[1]->string();
  if (bound[1] && !bound[1]->string() && !bound[1]->is_none()) {
    const int64_t width = require_integer(*bound[1], "the indent of tojson");
    TEMPERA_CHECK(width <= 4096, "tojson with an indent of ", width, "; at most 4096");
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator = std::string(1, ',');
  if (bound[2] && !bound[2]->is_none()) {
    const Sequence* pair = bound[2]->sequence();
    TEMPERA_CHECK(pair && pair->items.size() == 2, "the separators of tojson are two texts");
    style.item_separator = require_text(pair->items[0], "a separator of tojson");
    style.key_separator = require_text(pair->items[1], "a separator of tojson");
  }
  return Value::text(to_json(call.value, style, call.budget));
}

// A text as a number, as Python's int() or float() reads it, less the underscores.
std::optional<double> read_number(std::string_view text, bool whole) {
  text = strip(text, Side::kBoth);
  const auto allowed = whole ? "+-0123456789" : "+-0123456789.eE";
  if (text.empty() || text.find_first_not_of(allowed) != text.npos) return std::nullopt;
  try {
    size_t used = 0;
    const std::string copy(text);
    if (whole) {
      const long long value = std::stoll(copy, &used);
      TEMPERA_CHECK(std::llabs(value) < (1LL << 53), "the number '", copy, "' is too large");
      return used == copy.size() ? std::optional(static_cast<double>(value)) : std::nullopt;
    }
    const double value = std::stod(copy, &used);
    return used == copy.size() ? std::optional(value) : std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  } catch (const std::out_of_range&) {
    throw Error(concat("the number '", text, "' is too large"));
  }
}

Value to_integer(const FilterCall& call) {
  const auto bound = bind(call.arguments, "int", {"default", "base"});
  TEMPERA_CHECK(!bound[1], "a base for the filter 'int' is not supported");
  require_defined(call.value);
  if (const auto number = call.value.integer()) return Value(*number);
  std::optional<double> number;
  if (const auto* text = call.value.string()) {
    number = read_number(*text, /*whole=*/true);
    if (!number) number = read_number(*text, /*whole=*/false);
  } else {
    number = call.value.number();
  }
  if (!number || !std::isfinite(*number)) return bound[0].value_or(Value(int64_t{0}));
  TEMPERA_CHECK(std::abs(*number) < 9e18, "the number ", *number, " is beyond 64 bits");
  return Value(static_cast<int64_t>(*number));
}

Value to_real(const FilterCall& call) {
  const auto bound = bind(call.arguments, "float", {"default"});
  require_defined(call.value);
  auto number = call.value.number();
  if (const auto* text = call.value.string()) number = read_number(*text, /*whole=*/false);
  return number ? Value(*number) : bound[0].value_or(Value(0.0));
}

Value absolute(const FilterCall& call) {
  bind(call.arguments, "abs", {});
  TEMPERA_CHECK(call.value.number(), "the filter 'abs' needs a number");
  return *call.value.number() < 0 ? negative(call.value) : positive(call.value);
}

Value rounded(const FilterCall& call) {
  const auto bound = bind(call.arguments, "round", {"precision", "method"});
  TEMPERA_CHECK(!bound[0] && !bound[1], "the arguments of the filter 'round' are not supported");
  TEMPERA_CHECK(call.value.number(), "the filter 'round' needs a number");
  if (call.value.integer()) return positive(call.value);
  return Value(std::nearbyint(*call.value.number()));
}

Value length(const FilterCall& call) {
  bind(call.arguments, "length", {});
  const auto count = length_of(call.value);
  TEMPERA_CHECK(count, "a value of the type ", call.value.type_name(), " has no length");
  return Value(*count);
}

using Filter = Value (*)(const FilterCall&);

const std::map<std::string, Filter, std::less<>>& all_filters() {
  static const std::map<std::string, Filter, std::less<>> filters = [] {
    std::map<std::string, Filter, std::less<>> all = {
        {"abs", absolute},
        {"capitalize", changed<capitalize>},
        {"count", length},
        {"d", default_value},
        {"default", default_value},
        {"e", escape},
        {"escape", escape},
        {"float", to_real},
        {"indent", indent},
        {"int", to_integer},
        {"length", length},
        {"lower", changed<lower>},
        {"replace", replaced},
        {"round", rounded},
        {"safe", safe},
        {"string", string},
        {"title", titled},
        {"tojson", json},
        {"trim", trim},
        {"upper", changed<upper>},
    };
    for (const auto& [name, filter] : sequence_filters()) all.emplace(name, filter);
    return all;
  }();
  return filters;
}

}  // namespace

const std::vector<std::string>& filter_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, filter] : all_filters()) all.push_back(name);
    return all;
  }();
  return names;
}

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments,
                   Budget& budget) {
  budget.steps(1);
  const auto found = all_filters().find(name);
  TEMPERA_CHECK(found != all_filters().end(), "the filter '", name, "' is not supported");
  return found->second({name, value, arguments, budget});
}

}  // namespace tempera::text::jinja
