#include "tempera/config/options.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/config/sources.h"

namespace tempera::config {
namespace {

const Sources& no_sources() {
  static const Sources none;
  return none;
}

}  // namespace

Options::Options() : Options(no_sources()) {}
Options::Options(const Sources& sources) : sources_(&sources) {}

const Entry& Options::add(Entry entry) {
  Declaration& declaration = entry.declaration;
  declaration.name = prefix_ + declaration.name;
  if (entry.section == Section::kOther) entry.section = section_;
  for (const std::string* name : {&declaration.name, &declaration.alias})
    TEMPERA_CHECK(name->empty() || !find(*name), "option --", *name, " is declared twice");
  const std::string flag = "--" + declaration.name;
  // Until it is given, a required option holds an empty text, which need not be one of its choices.
  if (!entry.required() || declaration.value != Value(std::string{}))
    check_domain("the default of " + flag, declaration.value, declaration.domain);
  entry.value = declaration.value;
  if (const Given* given = sources_->find(declaration.name, declaration.alias)) {
    entry.value = convert(*given, declaration.name, entry.kind, entry.optional, declaration.domain);
    entry.origin = given->origin;
  }
  return entries_.emplace_back(std::move(entry));
}

size_t Options::enter(std::string_view group) {
  const size_t outer = prefix_.size();
  prefix_.append(group).push_back('.');
  return outer;
}

void Options::declared(std::string_view group, const std::vector<Declaration>& declarations,
                       std::map<std::string, Value>& values) {
  std::vector<std::string> known;
  for (const Declaration& declaration : declarations) known.push_back(declaration.name);
  for (const auto& [name, value] : values)
    if (std::ranges::count(known, name) == 0)
      throw UsageError(
          concat("unknown option --", prefix_, group, ".", name, did_you_mean(name, known)));
  const size_t outer = enter(group);
  for (const Declaration& declaration : declarations) {
    const Kind kind = kind_of(declaration.value);
    TEMPERA_CHECK(kind != Kind::kNone, "option ", declaration.name, ": declared without a default");
    Entry entry{.declaration = declaration, .kind = kind, .value = {}, .origin = {}};
    const auto held = values.find(declaration.name);
    if (held != values.end()) {
      TEMPERA_CHECK(kind_of(held->second) == kind, "option --", prefix_, declaration.name, ": ",
                    toml_text(held->second), " given, ", expectation(kind, declaration.domain),
                    " expected");
      entry.declaration.value = held->second;
    }
    values[declaration.name] = add(std::move(entry)).value;
  }
  leave(outer);
}

void Options::elsewhere(std::string_view group, const std::vector<Declaration>& declarations,
                        std::string_view condition) {
  for (Declaration declaration : declarations) {
    declaration.name = concat(prefix_, group, ".", declaration.name);
    elsewhere_.push_back({std::move(declaration), std::string(condition)});
  }
}

void Options::renamed(std::string_view name, std::string_view instead) {
  renamed_.emplace(prefix_ + std::string(name), instead);
}

const Entry* Options::find(std::string_view name_or_alias) const {
  for (const Entry& entry : entries_)
    if (entry.name() == name_or_alias ||
        (!entry.declaration.alias.empty() && entry.declaration.alias == name_or_alias))
      return &entry;
  return nullptr;
}

std::vector<std::string> Options::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    names.push_back(entry.name());
    if (!entry.declaration.alias.empty()) names.push_back(entry.declaration.alias);
  }
  return names;
}

void Options::check_known(const Sources& sources) const {
  for (const Sources::Layer& layer : sources.layers())
    for (const auto& [name, given] : layer) {
      if (find(name)) continue;
      const Raw* raw = std::get_if<Raw>(&given.value);
      const bool empty_table = raw && std::holds_alternative<Raw::EmptyTable>(raw->value);
      const bool group = std::ranges::any_of(
          entries_, [&](const Entry& entry) { return entry.name().starts_with(name + "."); });
      if (empty_table && group) continue;
      throw UsageError(concat("unknown key ", name, " in ", given.origin, hint(name)));
    }
}

void Options::check_complete() const {
  for (const Entry& entry : entries_)
    if (entry.required() && entry.value == Value(std::string{}))
      throw UsageError(concat(entry.name(), " is missing: ", entry.declaration.help));
}

std::string Options::hint(std::string_view unknown) const {
  if (const auto found = renamed_.find(unknown); found != renamed_.end())
    return ": " + found->second;
  std::string conditions;
  for (const Elsewhere& other : elsewhere_)
    if (other.declaration.name == unknown)
      conditions += (conditions.empty() ? ": it exists " : ", or ") + other.condition;
  return conditions.empty() ? did_you_mean(unknown, names()) : conditions;
}

}  // namespace tempera::config
