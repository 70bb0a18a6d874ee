#include <toml++/toml.h>

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/config/settings.h"
#include "tempera/config/sources.h"

namespace tempera::config {
namespace {

constexpr int kMaxDepth = 32;

// toml++ builds and frees nested tables by recursion, so that a key of a million dots, or as many
// brackets, would overflow the stack. This looks at keys and brackets alone and stops before that.
class DepthCheck {
 public:
  explicit DepthCheck(std::string_view text) : text_(text) {}

  bool passes() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (c == '.') {
        ++dots_;
      } else if (c == '[' || c == '{') {
        ++open_;
        dots_ = 0;
      } else if (c == ']' || c == '}') {
        --open_;
        dots_ = 0;
      } else if (c == ',' || c == '=' || c == '\n') {
        dots_ = 0;
      }
      if (dots_ > kMaxDepth || open_ > kMaxDepth) return false;
      ++at_;
    }
    return true;
  }

 private:
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
      if (c == '\\' && quote == '"') ++at_;
    }
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
  if (!DepthCheck(text).passes())
    throw UsageError(concat(origin, ": keys or lists are nested more than ", kMaxDepth, " deep"));
  Layer layer;
  try {
    const toml::table table = toml::parse(text);
    Flattener(origin, layer).table(table, "");
  } catch (const toml::parse_error& error) {
    throw UsageError(concat(origin, ", line ", error.source().begin.line, ", column ",
                            error.source().begin.column, ": ", error.description()));
  }
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
