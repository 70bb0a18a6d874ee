#include "tempera/config/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"

namespace tempera::config {
namespace {

// Shortest digits that give the same double back, always with a mark of a real number.
std::string real_text(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, result.ptr);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Bounds read better without the ".0" of a whole number.
std::string bound_text(double value) {
  std::string text = real_text(value);
  if (std::abs(value) < 1e15 && value == std::floor(value))
    text = std::to_string(static_cast<int64_t>(value));
  return text;
}

std::string in_quotes(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += "\\u00";
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string scalar_name(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "nothing";
    case Kind::kBool:
      return "true or false";
    case Kind::kInt:
      return "an integer";
    case Kind::kReal:
      return "a number";
    case Kind::kText:
      return "a text";
    case Kind::kIntList:
      return "a list of integers";
    case Kind::kRealList:
      return "a list of numbers";
    case Kind::kTextList:
      return "a list of texts";
  }
  return {};
}

[[noreturn]] void reject(std::string_view what, std::string_view given, Kind kind,
                         const Domain& domain, std::string_view hint = {}) {
  throw UsageError(
      concat(what, ": ", given, " given, ", expectation(kind, domain), " expected", hint));
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  parts.emplace_back();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == ',' || text[at + 1] == '\\')) {
      parts.back() += text[++at];
    } else if (text[at] == ',') {
      parts.emplace_back();
    } else {
      parts.back() += text[at];
    }
  }
  return parts;
}

template <class Number>
Value parse_numbers(std::string_view what, std::string_view text, Kind kind, const Domain& domain) {
  std::vector<Number> numbers;
  for (const std::string& part : split_list(text)) {
    const auto number = parse_number<Number>(part);
    if (!number) reject(what, in_quotes(text), kind, domain);
    numbers.push_back(*number);
  }
  return numbers;
}

bool in_range(double number, const Domain& domain) {
  if (!std::isfinite(number)) return false;
  if (!domain.range) return true;
  const Range& range = *domain.range;
  return (range.low_open ? number > range.low : number >= range.low) && number <= range.high;
}

// The first element outside the domain as text, or nothing.
std::optional<std::string> outside(const std::string& text, const Domain& domain) {
  const bool known = domain.choices.empty() || std::ranges::count(domain.choices, text) > 0;
  if (known && is_clean_text(text)) return std::nullopt;
  return text;
}
std::optional<std::string> outside(int64_t number, const Domain& domain) {
  if (in_range(static_cast<double>(number), domain)) return std::nullopt;
  return std::to_string(number);
}
std::optional<std::string> outside(double number, const Domain& domain) {
  if (in_range(number, domain)) return std::nullopt;
  return real_text(number);
}
std::optional<std::string> outside(bool, const Domain&) { return std::nullopt; }
std::optional<std::string> outside(std::monostate, const Domain&) { return std::nullopt; }
template <class T>
std::optional<std::string> outside(const std::vector<T>& list, const Domain& domain) {
  for (const T& element : list)
    if (auto bad = outside(element, domain)) return bad;
  return std::nullopt;
}

struct TomlWriter {
  std::string operator()(std::monostate) const { return "not set"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return real_text(value); }
  std::string operator()(const std::string& value) const { return in_quotes(value); }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text = "[";
    for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + (*this)(list[i]);
    return text + "]";
  }
};

struct PlainWriter {
  std::string operator()(const std::string& value) const { return value; }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text;
    for (size_t i = 0; i < list.size(); ++i) text += (i ? "," : "") + element(list[i]);
    return text;
  }
  template <class T>
  std::string operator()(const T& value) const {
    return TomlWriter{}(value);
  }

 private:
  static std::string element(const std::string& value) {
    std::string text;
    for (const char c : value) {
      if (c == ',' || c == '\\') text += '\\';
      text += c;
    }
    return text;
  }
  template <class T>
  static std::string element(T value) {
    return TomlWriter{}(value);
  }
};

}  // namespace

std::string range_text(const Domain& domain) {
  if (!domain.range) return {};
  const Range& range = *domain.range;
  const bool low = std::isfinite(range.low);
  const bool high = std::isfinite(range.high);
  if (!low) return high ? "at most " + bound_text(range.high) : std::string{};
  if (!high) return (range.low_open ? "above " : "at least ") + bound_text(range.low);
  if (range.low_open) return "above " + bound_text(range.low) + ", up to " + bound_text(range.high);
  return bound_text(range.low) + " to " + bound_text(range.high);
}

std::string expectation(Kind kind, const Domain& domain) {
  if (!domain.choices.empty()) {
    std::string text = kind == Kind::kTextList ? "a list of " : "one of ";
    for (size_t i = 0; i < domain.choices.size(); ++i) text += (i ? ", " : "") + domain.choices[i];
    return text;
  }
  const std::string bounds = range_text(domain);
  return scalar_name(kind) + (bounds.empty() ? "" : ", " + bounds + ",");
}

void check_domain(std::string_view what, const Value& value, const Domain& domain) {
  const auto bad = std::visit([&](const auto& held) { return outside(held, domain); }, value);
  if (!bad) return;
  const Kind kind = kind_of(value);
  if (kind == Kind::kText || kind == Kind::kTextList) {
    if (!is_clean_text(*bad))
      throw UsageError(
          concat(what, ": the text given is not valid UTF-8, or has a NUL character in it"));
    reject(what, in_quotes(*bad), kind, domain, did_you_mean(*bad, domain.choices));
  }
  reject(what, *bad, kind, domain);
}

Value parse_text(std::string_view what, std::string_view text, Kind kind, const Domain& domain) {
  // First, so that the messages below quote only what a terminal can show.
  check_domain(what, Value(std::string(text)), Domain{});
  Value value;
  switch (kind) {
    case Kind::kNone:
      break;
    case Kind::kBool:
      if (text != "true" && text != "false") reject(what, in_quotes(text), kind, domain);
      value = text == "true";
      break;
    case Kind::kInt:
      if (const auto number = parse_number<int64_t>(text)) value = *number;
      break;
    case Kind::kReal:
      if (const auto number = parse_number<double>(text)) value = *number;
      break;
    case Kind::kText:
      value = std::string(text);
      break;
    case Kind::kIntList:
      value = parse_numbers<int64_t>(what, text, kind, domain);
      break;
    case Kind::kRealList:
      value = parse_numbers<double>(what, text, kind, domain);
      break;
    case Kind::kTextList:
      value = split_list(text);
      break;
  }
  if (kind_of(value) == Kind::kNone) reject(what, in_quotes(text), kind, domain);
  check_domain(what, value, domain);
  return value;
}

std::string toml_text(const Value& value) { return std::visit(TomlWriter{}, value); }
std::string plain_text(const Value& value) { return std::visit(PlainWriter{}, value); }

bool is_clean_text(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead == 0) return false;
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length == 0 || lead > 0xf4 || at + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0xffU >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fU);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return false;
    at += length;
  }
  return true;
}

}  // namespace tempera::config
