#include <algorithm>
#include <cctype>

#include "tempera/config/command_line.h"

namespace tempera::config {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kMaxColumn = 34;

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string metavariable(const Entry& entry) {
  const std::vector<std::string>& choices = entry.declaration.domain.choices;
  if (!choices.empty() && choices.size() <= 4 && entry.kind == Kind::kText) {
    std::string text = choices[0];
    for (size_t i = 1; i < choices.size(); ++i) text += "|" + choices[i];
    return text;
  }
  switch (entry.kind) {
    case Kind::kInt:
      return "N";
    case Kind::kReal:
      return "X";
    case Kind::kIntList:
      return "N,N,...";
    case Kind::kRealList:
      return "X,X,...";
    case Kind::kTextList:
      return "TEXT,...";
    default:
      return "TEXT";
  }
}

std::string left_side(const Entry& entry) {
  const std::string& alias = entry.declaration.alias;
  const std::string flag = "--" + (alias.empty() ? entry.name() : alias);
  if (entry.kind == Kind::kBool) return flag + (entry.value == Value(true) ? "=false" : "");
  return flag + " " + metavariable(entry);
}

// "training steps [1 to 100; default 10]"
std::string right_side(const Entry& entry) {
  const Domain& domain = entry.declaration.domain;
  std::string facts;
  const auto add = [&](const std::string& fact) {
    if (!fact.empty()) facts += (facts.empty() ? "" : "; ") + fact;
  };
  if (!domain.choices.empty()) add(expectation(entry.kind, domain));
  add(range_text(domain));
  const Value& value = entry.declaration.value;
  const bool has_default = kind_of(value) != Kind::kNone && !entry.required() &&
                           value != Value(std::string{}) &&
                           value != Value(std::vector<std::string>{});
  if (has_default) add("default " + plain_text(value));
  if (!entry.declaration.alias.empty()) add("key " + entry.name());
  return entry.declaration.help + (facts.empty() ? "" : " [" + facts + "]");
}

// Two columns; the right one is wrapped.
class Table {
 public:
  void row(std::string left, std::string right) {
    rows_.emplace_back(std::move(left), std::move(right));
  }

  void print(std::string_view title, std::string& text) const {
    if (rows_.empty()) return;
    size_t column = 0;
    for (const auto& [left, right] : rows_)
      if (left.size() + 4 <= kMaxColumn) column = std::max(column, left.size() + 4);
    if (column == 0) column = kMaxColumn;
    text.append("\n").append(title).append(":\n");
    for (const auto& [left, right] : rows_) {
      text += "  " + left;
      size_t at = left.size() + 2;
      if (at + 2 > column) {
        text += "\n";
        at = 0;
      }
      text.append(column - at, ' ');
      wrap(right, column, text);
    }
  }

 private:
  static void wrap(std::string_view words, size_t column, std::string& text) {
    size_t at = column;
    bool first = true;
    while (!words.empty()) {
      const size_t length = std::min(words.find(' '), words.size());
      if (!first && at + 1 + length > kWidth) {
        text.append("\n").append(column, ' ');
        at = column;
      } else if (!first) {
        text += ' ';
        ++at;
      }
      text += words.substr(0, length);
      at += length;
      first = false;
      words.remove_prefix(std::min(length + 1, words.size()));
    }
    text += '\n';
  }

  std::vector<std::pair<std::string, std::string>> rows_;
};

}  // namespace

std::string help_text(std::string_view program, std::string_view verb, std::string_view summary,
                      const Options& options) {
  std::string text = "Usage: " + std::string(program) + " " + std::string(verb) + " [options]";
  Table arguments;
  Table flags;
  bool lists = false;
  for (const Entry& entry : options.entries()) {
    if (!entry.positional) {
      lists = lists || is_list(entry.kind);
      flags.row(left_side(entry), right_side(entry));
      continue;
    }
    std::string word = upper(entry.name()) + (is_list(entry.kind) ? "..." : "");
    arguments.row(word, right_side(entry));
    text += " " + (entry.required() ? word : "[" + word + "]");
  }
  flags.row("--config FILE", "read options from this TOML file; flags replace what it says");
  flags.row("--dump-config", "print all options as TOML, for --config, and stop");
  flags.row("--help", "print this and stop");
  text.append("\n").append(summary).append("\n");
  arguments.print("Arguments", text);
  flags.print("Options", text);
  if (lists)
    text +=
        "\nLists (\"...\") are separated by commas; a flag that is given again adds to its list.\n";
  return text;
}

}  // namespace tempera::config
