#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/jinja/value.h"

// What the language can do with values. All throw Error for what Jinja refuses too, and by name for
// what is not supported.
namespace tempera::text::jinja {

const std::vector<std::string>& filter_names();
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments,
                   Budget& budget);

const std::vector<std::string>& test_names();
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments,
                Budget& budget);

// value.name and value[key]: each tries the other where it finds nothing.
Value get_attribute(const Value& value, const std::string& name, Budget& budget);
Value get_item(const Value& value, const Value& key, Budget& budget);
Value get_slice(const Value& value, const Value& begin, const Value& end, const Value& step,
                Budget& budget);

// A method as a value; nothing if the type has none of that name. Those that change the value are
// undefined.
std::optional<Value> find_method(const Value& value, const std::string& name, Budget& budget);

Value arithmetic(std::string_view operation, const Value& a, const Value& b, Budget& budget);
Value negative(const Value& value);
Value positive(const Value& value);

// range, dict, namespace, raise_exception, strftime_now; nothing for other names.
std::optional<Value> find_global(std::string_view name, Budget& budget,
                                 const std::optional<std::tm>& now);

// The text of a value that has to be one; `what` asks for it.
const std::string& require_text(const Value& value, std::string_view what);
int64_t require_integer(const Value& value, std::string_view what);

}  // namespace tempera::text::jinja
