#include "tempera/config/help.h"

#include <algorithm>
#include <cctype>

#include "tempera/base/error.h"

namespace tempera::config {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kMaxColumn = 34;
constexpr size_t kMostSpelledChoices = 5;

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool spells_choices(const Entry& entry) {
  const size_t count = entry.declaration.domain.choices.size();
  return count > 0 && count <= kMostSpelledChoices && entry.kind == Kind::kText;
}

std::string metavariable(const Entry& entry) {
  if (spells_choices(entry)) {
    const std::vector<std::string>& choices = entry.declaration.domain.choices;
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

bool is_on(const Entry& entry) { return entry.declaration.value == Value(true); }

// An unset text or list, an absent file: nothing that a reader needs to be told.
bool has_default(const Entry& entry) {
  const Value& value = entry.declaration.value;
  return kind_of(value) != Kind::kNone && !entry.required() && value != Value(std::string{}) &&
         value != Value(std::vector<std::string>{});
}

// Two columns; the right one is wrapped.
class Table {
 public:
  void row(std::string_view left, std::string_view right) { rows_.emplace_back(left, right); }

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

void print_examples(const std::vector<Example>& examples, std::string& text) {
  if (examples.empty()) return;
  text += "\nExamples:\n";
  for (const auto& [command, meaning] : examples)
    text.append("  # ").append(meaning).append("\n  ").append(command).append("\n");
}

// The options of one section; gives how many it left out.
size_t print_section(const VerbDescription& verb, Section section, std::string_view title, bool all,
                     std::string& text) {
  Table flags;
  size_t hidden = 0;
  for (const Entry& entry : verb.options.entries()) {
    if (entry.positional || entry.section != section) continue;
    if (entry.rare && !all)
      ++hidden;
    else
      flags.row(flag_text(entry), meaning_text(entry, all));
  }
  if (section == Section::kOther)
    for (const auto& [flag, meaning] : kCommonFlags) flags.row(flag, meaning);
  flags.print(title, text);
  return hidden;
}

}  // namespace

std::string argument_text(const Entry& entry) {
  return upper(entry.name()) + (is_list(entry.kind) ? "..." : "");
}

std::string usage_text(std::string_view program, const VerbDescription& verb) {
  std::string text = concat(program, " ", verb.name);
  for (const Entry& entry : verb.options.entries())
    if (entry.positional)
      text += " " + (entry.required() ? argument_text(entry) : "[" + argument_text(entry) + "]");
  return text + " [options]";
}

std::string flag_text(const Entry& entry) {
  const std::string& alias = entry.declaration.alias;
  const std::string flag = "--" + (alias.empty() ? entry.name() : alias);
  if (entry.kind == Kind::kBool) return flag + (is_on(entry) ? "=true|false" : "");
  return flag + " " + metavariable(entry);
}

std::string meaning_text(const Entry& entry, bool all) {
  const Domain& domain = entry.declaration.domain;
  std::string facts;
  const auto add = [&](const std::string& fact) {
    if (!fact.empty()) facts += (facts.empty() ? "" : "; ") + fact;
  };
  if (!domain.choices.empty() && !spells_choices(entry)) add(expectation(entry.kind, domain));
  if (all) add(range_text(domain));
  if (has_default(entry) && (entry.kind != Kind::kBool || is_on(entry)))
    if (const auto value = plain_text(entry.declaration.value); !value.empty())
      add("default " + value);
  if (all && !entry.declaration.alias.empty()) add("key " + entry.name());
  return entry.declaration.help + (facts.empty() ? "" : " [" + facts + "]");
}

std::string help_text(std::string_view program, const VerbDescription& verb, bool all) {
  std::string text = concat("Usage: ", usage_text(program, verb), "\n", verb.summary, "\n");
  print_examples(verb.examples, text);
  Table arguments;
  for (const Entry& entry : verb.options.entries())
    if (entry.positional) arguments.row(argument_text(entry), meaning_text(entry, all));
  arguments.print("Arguments", text);
  size_t hidden = 0;
  for (const auto& [section, title] : kSections)
    hidden += print_section(verb, section, title, all, text);
  if (std::ranges::any_of(verb.options.entries(),
                          [](const Entry& entry) { return is_list(entry.kind); }))
    text.append("\n").append(kListNote).append("\n");
  if (hidden > 0)
    text += concat("\n", hidden, " more option", hidden > 1 ? "s" : "", ": `", program, " ",
                   verb.name, " --help-all`.\n");
  return text;
}

}  // namespace tempera::config
