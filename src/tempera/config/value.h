#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tempera::config {

// What an option holds. The empty alternative is an optional one that is not set.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                           std::vector<double>, std::vector<std::string>>;

// The alternatives of Value, by the same index.
enum class Kind { kNone, kBool, kInt, kReal, kText, kIntList, kRealList, kTextList };

inline Kind kind_of(const Value& value) { return static_cast<Kind>(value.index()); }
inline bool is_list(Kind kind) { return kind >= Kind::kIntList; }

// Bounds of a number. Doubles, so integer bounds are exact up to 2^53.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // low itself is excluded
};

// What an option accepts beyond its type; for a list, what each element must be.
struct Domain {
  std::optional<Range> range = {};
  std::vector<std::string> choices = {};
};

inline Domain range(double low, double high) { return {.range = Range{low, high, false}}; }
inline Domain at_least(double low) { return {.range = Range{.low = low}}; }
inline Domain above(double low) { return {.range = Range{.low = low, .low_open = true}}; }
// Above low, up to and including high.
inline Domain above_to(double low, double high) { return {.range = Range{low, high, true}}; }
inline Domain choices(std::vector<std::string> names) { return {.choices = std::move(names)}; }

// "an integer from 1 to 10", "one of cpu, cuda, auto", "a list of numbers above 0".
std::string expectation(Kind kind, const Domain& domain);
// "1 to 10", "at least 0", "above 0"; empty without bounds.
std::string range_text(const Domain& domain);

// Throws UsageError with `what` in front unless the value lies in the domain. Numbers must be
// finite.
void check_domain(std::string_view what, const Value& value, const Domain& domain);

// The value of a command-line argument; lists are separated by commas ("\," is a comma itself).
// Throws UsageError with `what` in front.
Value parse_text(std::string_view what, std::string_view text, Kind kind, const Domain& domain);

// As it is written in TOML: 1, 0.5, true, "text", [1, 2]. An unset value gives "not set".
std::string toml_text(const Value& value);
// As it is written on the command line; parse_text gives the same value back.
std::string plain_text(const Value& value);

// Whether the bytes are UTF-8 without NUL, which TOML, JSON and file names can all hold.
bool is_clean_text(std::string_view text);

}  // namespace tempera::config
