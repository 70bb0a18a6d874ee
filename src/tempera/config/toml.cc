#include <algorithm>

#include "tempera/base/error.h"

namespace {

struct FailedAssertion {};

[[noreturn]] void fail_assertion() { throw FailedAssertion{}; }

}  // namespace

// Some malformed files, "[;a]" for one, reach an assertion of toml++ 3.3 and would end the process.
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : fail_assertion())
#include <toml++/toml.h>

#include "tempera/config/settings.h"
#include "tempera/config/sources.h"

namespace tempera::config {
namespace {

constexpr int kMaxDepth = 32;

// Refuses the few texts that toml++ 3.3 must not see, by keys, brackets and strings alone:
// - It builds and frees nested tables by recursion, so that a key of a million dots, or as many
//   brackets, would overflow the stack.
// - It has undefined behaviour for letters beyond ASCII where blanks may stand. TOML allows such
// letters
//   in strings and comments only, so nothing valid is lost but one after a backslash that joins
//   lines.
class Guard {
 public:
  explicit Guard(std::string_view text) : text_(text) {
    if (text.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  // What is wrong; empty if nothing is.
  std::string problem() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        if (!is_ascii()) return "line " + line() + ": a letter beyond ASCII after a joined line";
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        if (!is_ascii()) return "line " + line() + ": a letter beyond ASCII outside of quotes";
        count(c);
        if (dots_ > kMaxDepth || open_ > kMaxDepth)
          return concat("line ", line(), ": keys or lists nested more than ", kMaxDepth, " deep");
        ++at_;
      }
    }
    return {};
  }

 private:
  bool is_ascii() const {
    return at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x80;
  }

  std::string line() const {
    return std::to_string(1 + std::ranges::count(text_.substr(0, at_), '\n'));
  }

  void count(char c) {
    if (c == '.') ++dots_;
    if (c == '[' || c == '{') ++open_;
    if (c == ']' || c == '}') --open_;
    if (std::string_view("[]{},=\n").find(c) != std::string_view::npos) dots_ = 0;
  }

  // Stops behind the closing quote, or before a letter that a joined line must not begin with.
  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool multi_line = text_.substr(at_, 3) == triple;
    at_ += multi_line ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (multi_line && text_.substr(at_, 3) == triple) {
        at_ += 3;
        // Up to two quotes may stand right before the closing three.
        while (at_ < text_.size() && text_[at_] == quote) ++at_;
        return;
      }
      if (!multi_line && c == '\n') return;
      ++at_;
      if (!multi_line && c == quote) return;
      if (c == '\\' && quote == '"' && !skip_escape()) return;
    }
  }

  // Behind a backslash. False if it joins lines and a letter beyond ASCII follows.
  bool skip_escape() {
    const size_t next = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    if (next == at_) {
      if (!is_ascii()) return false;
      ++at_;
      return true;
    }
    at_ = next;
    return is_ascii();
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t dots_ = 0;
  int64_t open_ = 0;
};

class Flattener {
 public:
  Flattener(std::string_view origin, Sources::Layer& layer) : origin_(origin), layer_(layer) {}

  void table(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      const toml::table* inner = node.as_table();
      if (inner && !inner->empty()) {
        this->table(*inner, name + ".");
        continue;
      }
      Raw value = inner ? Raw{Raw::EmptyTable{}} : raw(node, name);
      if (!layer_.emplace(name, Given{std::move(value), origin_}).second)
        throw UsageError(concat("key ", name, " is twice in ", origin_));
    }
  }

 private:
  Raw raw(const toml::node& node, const std::string& name) const {
    if (const auto* value = node.as_boolean()) return {value->get()};
    if (const auto* value = node.as_integer()) return {value->get()};
    if (const auto* value = node.as_floating_point()) return {value->get()};
    if (const auto* value = node.as_string()) return {value->get()};
    if (const auto* array = node.as_array()) {
      std::vector<Raw> elements;
      for (const toml::node& element : *array) {
        if (element.is_table() || element.is_array())
          throw UsageError(concat("key ", name, " in ", origin_, ": a list holds values only"));
        elements.push_back(raw(element, name));
      }
      return {std::move(elements)};
    }
    throw UsageError(
        concat("key ", name, " in ", origin_, ": a date or time given, which no option takes"));
  }

  std::string origin_;
  Sources::Layer& layer_;
};

toml::table parse(std::string_view text, std::string_view origin) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw UsageError(concat(origin, ", line ", error.source().begin.line, ", column ",
                            error.source().begin.column, ": ", error.description()));
  } catch (const FailedAssertion&) {
    throw UsageError(concat(origin, ": a key or a value is malformed"));
  }
}

std::string comment(const Entry& entry) {
  std::string text = entry.declaration.help;
  const Domain& domain = entry.declaration.domain;
  if (!domain.choices.empty() || domain.range)
    text += " (" + (domain.range ? range_text(domain) : expectation(entry.kind, domain)) + ")";
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

std::string group_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string{} : name.substr(0, dot);
}

void dump_group(const std::string& group, const Options& options, std::string& text) {
  if (!group.empty()) text += "\n[" + group + "]\n";
  for (const Entry& entry : options.entries()) {
    if (group_of(entry.name()) != group) continue;
    const bool missing = entry.required() && entry.value == Value(std::string{});
    const bool unset = missing || kind_of(entry.value) == Kind::kNone;
    const std::string key = group.empty() ? entry.name() : entry.name().substr(group.size() + 1);
    text += "# " + comment(entry) + "\n";
    text += unset ? "# " + key + " is not set\n" : key + " = " + toml_text(entry.value) + "\n";
  }
}

}  // namespace

void Sources::add_toml(std::string_view text, std::string_view origin) {
  if (const std::string problem = Guard(text).problem(); !problem.empty())
    throw UsageError(concat(origin, ", ", problem));
  Layer layer;
  Flattener(origin, layer).table(parse(text, origin), "");
  add(std::move(layer));
}

std::string dump_toml(const Options& options) {
  // TOML takes every key behind a table's header as the table's, so the groups come last.
  std::vector<std::string> groups = {""};
  for (const Entry& entry : options.entries()) {
    const std::string group = group_of(entry.name());
    if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  std::string text;
  for (const std::string& group : groups) dump_group(group, options, text);
  return text;
}

}  // namespace tempera::config
