#include <cmath>
#include <limits>

#include "tempera/base/error.h"
#include "tempera/text/jinja/functions.h"
#include "tempera/text/jinja/string.h"

namespace tempera::text::jinja {
namespace {

[[noreturn]] void refuse(std::string_view operation, const Value& a, const Value& b) {
  throw Error(concat("'", operation, "' between values of the types ", a.type_name(), " and ",
                     b.type_name()));
}

Value checked(bool overflow, int64_t value, std::string_view operation) {
  TEMPERA_CHECK(!overflow, "the result of '", operation, "' is beyond 64 bits");
  return Value(value);
}

Value floor_division(int64_t a, int64_t b, bool remainder) {
  TEMPERA_CHECK(b != 0, "division by zero");
  if (b == -1) {  // the only division that can overflow
    int64_t negated = 0;
    const bool overflow = __builtin_sub_overflow(int64_t{0}, a, &negated);
    return remainder ? Value(int64_t{0}) : checked(overflow, negated, "//");
  }
  const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
  return Value(remainder ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0));
}

Value integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool overflow = false;
  while (exponent > 0 && !overflow) {
    if (exponent & 1) overflow = __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0 && base != 0 && base != 1 && base != -1)
      overflow = overflow || __builtin_mul_overflow(base, base, &base);
    else if (exponent > 0 && base == -1)
      base = 1;
  }
  return checked(overflow, result, "**");
}

Value integers(std::string_view operation, int64_t a, int64_t b) {
  int64_t result = 0;
  if (operation == "+" || operation == "-" || operation == "*") {
    const bool overflow = operation == "+"   ? __builtin_add_overflow(a, b, &result)
                          : operation == "-" ? __builtin_sub_overflow(a, b, &result)
                                             : __builtin_mul_overflow(a, b, &result);
    return checked(overflow, result, operation);
  }
  if (operation == "//" || operation == "%") return floor_division(a, b, operation == "%");
  if (operation == "**" && b >= 0) return integer_power(a, b);
  if (operation == "**") {
    TEMPERA_CHECK(a != 0, "division by zero");
    return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  TEMPERA_CHECK(b != 0, "division by zero");
  constexpr int64_t kExact = int64_t{1} << 53;
  TEMPERA_CHECK(std::abs(a / 2) <= kExact / 2 && std::abs(b / 2) <= kExact / 2,
                "'/' of whole numbers beyond 53 bits is not supported");
  return Value(static_cast<double>(a) / static_cast<double>(b));
}

Value reals(std::string_view operation, double a, double b) {
  if (operation == "+") return Value(a + b);
  if (operation == "-") return Value(a - b);
  if (operation == "*") return Value(a * b);
  if (operation == "**") {
    const double result = std::pow(a, b);
    TEMPERA_CHECK(std::isfinite(result), "'**' of ", a, " and ", b, " has no result");
    return Value(result);
  }
  TEMPERA_CHECK(b != 0, "division by zero");
  if (operation == "/") return Value(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (operation == "%") return Value(remainder == 0 ? std::copysign(0.0, b) : remainder);
  const double quotient = (a - remainder) / b, floor = std::floor(quotient);
  return Value(quotient - floor > 0.5 ? floor + 1 : floor);
}

Value add_texts(const Value& a, const Value& b, Budget& budget) {
  const bool markup = a.is_markup() || b.is_markup();
  const auto part = [&](const Value& value) {
    return markup && !value.is_markup() ? escape_html(*value.string()) : *value.string();
  };
  budget.grow(a.string()->size(), b.string()->size());
  budget.bytes(a.string()->size());
  return Value::text(part(a) + part(b), markup);
}

Value repeat(const Value& value, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const auto* text = value.string();
  const size_t size = text ? text->size() : value.sequence()->items.size();
  TEMPERA_CHECK(size == 0 || count <= (size_t{1} << 40) / size, "'*' makes a value of ", count,
                " times ", size, " items");
  if (text) {
    budget.grow(0, size * count);
    std::string all;
    for (size_t i = 0; i < (size == 0 ? 0 : count); ++i) all += *text;
    return Value::text(std::move(all), value.is_markup());
  }
  budget.steps(size * count);
  std::vector<Value> items;
  for (size_t i = 0; i < (size == 0 ? 0 : count); ++i)
    items.insert(items.end(), value.sequence()->items.begin(), value.sequence()->items.end());
  return Value::sequence(value.sequence()->kind, std::move(items));
}

bool is_array(const Value& value) {
  const Sequence* held = value.sequence();
  return held && (held->kind == SequenceKind::kList || held->kind == SequenceKind::kTuple);
}

}  // namespace

Value arithmetic(std::string_view operation, const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  require_defined(b);
  if (a.integer() && b.integer()) return integers(operation, *a.integer(), *b.integer());
  if (a.number() && b.number()) return reals(operation, *a.number(), *b.number());
  if (operation == "+" && a.string() && b.string()) return add_texts(a, b, budget);
  if (operation == "+" && is_array(a) && is_array(b) && a.sequence()->kind == b.sequence()->kind) {
    std::vector<Value> items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    budget.steps(items.size());
    return Value::sequence(a.sequence()->kind, std::move(items));
  }
  if (operation == "*") {
    if ((a.string() || is_array(a)) && b.integer()) return repeat(a, *b.integer(), budget);
    if ((b.string() || is_array(b)) && a.integer()) return repeat(b, *a.integer(), budget);
  }
  TEMPERA_CHECK(!(operation == "%" && a.string()),
                "formatting a text with '%' is not supported; use '~' or the method 'format'");
  refuse(operation, a, b);
}

Value negative(const Value& value) {
  require_defined(value);
  if (const auto number = value.integer()) return integers("-", 0, *number);
  TEMPERA_CHECK(value.number(), "'-' before a value of the type ", value.type_name());
  return Value(-*value.number());
}

Value positive(const Value& value) {
  require_defined(value);
  if (const auto number = value.integer()) return Value(*number);
  TEMPERA_CHECK(value.number(), "'+' before a value of the type ", value.type_name());
  return value;
}

}  // namespace tempera::text::jinja
