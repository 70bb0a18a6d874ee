#pragma once

#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tempera/config/value.h"

namespace tempera::config {

class Sources;

// An option as its owner writes it down, once. From it come the flag, the key of the TOML file, the
// help, the dump, the checkpoint's metadata and the completion.
struct Declaration {
  std::string
      name;  // the flag without dashes, and the key; a dot separates a group from its member
  Value value = {};  // the default; its alternative is the option's type
  std::string help = {};
  Domain domain = {};
  std::string alias = {};  // a second name, such as `temperature` for `temperature.method`
  bool local = false;      // says where and how to run, not what: two runs may differ in it
  bool once = false;       // asks for something now: no part of what is noted of a run
};

// Where an option stands in the help; the sections come in this order.
enum class Section {
  kOther,
  kData,
  kModel,
  kTemperature,
  kTraining,
  kMeasuring,
  kText,
  kServer,
  kOutput,
  kComputing
};

// What few options need; see Declaration and Entry.
struct Attributes {
  std::string alias = {};
  bool local = false;
  bool once = false;
  bool rare = false;
  Section section = Section::kOther;  // kOther: the section that is open
};

// An option after a pass: its declaration and the value it got.
struct Entry {
  Declaration declaration;
  Kind kind = Kind::kNone;
  bool optional = false;    // may be unset
  bool positional = false;  // may be given by its place on the command line
  bool rare = false;        // few need it: in the help on request
  Section section = Section::kOther;
  Value value;         // the default, or what a source gave
  std::string origin;  // where the value comes from; empty for the default

  const std::string& name() const { return declaration.name; }
  // A positional option without a usable default.
  bool required() const { return positional && !optional && !is_list(kind); }
};

// An option of another choice than the present one (another method's), for completion and messages.
struct Elsewhere {
  Declaration declaration;
  std::string condition;  // "only with --temperature ssa"
};

// The names of an enumeration's values, in the order of the help.
template <class Enum>
struct EnumChoices {
  std::vector<std::pair<std::string, Enum>> names;
};

// One pass over the declarations of a settings struct:
//
//   struct Settings {
//     int64_t steps = 1000;
//     Model model;  // has a declare() of its own
//     void declare(config::Options& options) {
//       options.option("steps", steps, config::range(1, 1'000'000'000), "training steps");
//       options.group("model", model);
//     }
//   };
//
// Each call takes the field's value as the default, sets the field at once if the sources name it,
// and notes the entry. So later declarations may depend on fields declared before them, as the
// options of a method depend on the method's name. Fields: bool, int64_t, double, std::string,
// std::vector of the last three, std::optional of a scalar, enumerations with EnumChoices.
class Options {
 public:
  Options();                                 // a pass that reads the fields and changes none
  explicit Options(const Sources& sources);  // the sources must outlive the pass
  Options(Options&&) noexcept = default;
  Options& operator=(Options&&) noexcept = default;
  Options(const Options&) = default;
  Options& operator=(const Options&) = default;
  ~Options() = default;

  template <class T>
  void option(std::string_view name, T& field, std::string_view help, const Attributes& more = {}) {
    option(name, field, Domain{}, help, more);
  }

  template <class T>
  void option(std::string_view name, T& field, const Domain& domain, std::string_view help,
              const Attributes& more = {}) {
    bind(name, field, domain, help, more, /*positional=*/false);
  }

  template <class Enum>
    requires std::is_enum_v<Enum>
  void option(std::string_view name, Enum& field, const EnumChoices<Enum>& names,
              std::string_view help, const Attributes& more = {}) {
    std::string text;
    Domain domain;
    for (const auto& [word, value] : names.names) {
      domain.choices.push_back(word);
      if (value == field) text = word;
    }
    bind(name, text, domain, help, more, /*positional=*/false);
    for (const auto& [word, value] : names.names)
      if (word == text) field = value;
  }

  // An option that is usually given by its place: `tempera eval MODEL`. A std::string must be
  // given, a std::optional may be, a vector of strings takes all that are left. It is also a flag
  // and a key.
  template <class T>
  void positional(std::string_view name, T& field, const Domain& domain, std::string_view help,
                  const Attributes& more = {}) {
    bind(name, field, domain, help, more, /*positional=*/true);
  }
  template <class T>
  void positional(std::string_view name, T& field, std::string_view help) {
    positional(name, field, Domain{}, help);
  }

  // The options declared from here on stand in this section of the help.
  void section(Section section) { section_ = section; }

  // The members of `settings`, each named NAME.MEMBER. Those without a short name are rare.
  template <class Settings>
  void group(std::string_view name, Settings& settings) {
    const size_t outer = enter(name);
    settings.declare(*this);
    leave(outer);
  }

  // Options known only at run time, each named GROUP.NAME; `values` has exactly these names
  // afterwards.
  void declared(std::string_view group, const std::vector<Declaration>& declarations,
                std::map<std::string, Value>& values);
  // Options that would exist under another choice; a choice of one of them is explained, not
  // accepted.
  void elsewhere(std::string_view group, const std::vector<Declaration>& declarations,
                 std::string_view condition);

  // A name that is no longer taken; `instead` says what to write, as a clause.
  void renamed(std::string_view name, std::string_view instead);

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Elsewhere>& elsewhere() const { return elsewhere_; }
  const Entry* find(std::string_view name_or_alias) const;
  // Every name a user may write, aliases included.
  std::vector<std::string> names() const;

  // Throws UsageError if the sources name an option that was not declared.
  void check_known(const Sources& sources) const;
  // Throws UsageError if a required option is missing.
  void check_complete() const;
  // The end of an "unknown option" message: what it belongs to, or the nearest known name.
  std::string hint(std::string_view unknown) const;

 private:
  template <class T>
  struct Unwrap {
    using Type = T;
    static constexpr bool kOptional = false;
  };
  template <class T>
  struct Unwrap<std::optional<T>> {
    using Type = T;
    static constexpr bool kOptional = true;
  };

  template <class T>
  void bind(std::string_view name, T& field, const Domain& domain, std::string_view help,
            const Attributes& more, bool positional) {
    using Plain = typename Unwrap<T>::Type;
    constexpr bool kOptional = Unwrap<T>::kOptional;
    Value value;
    if constexpr (kOptional) {
      if (field) value = *field;
    } else {
      value = field;
    }
    Entry entry{.declaration = {std::string(name), std::move(value), std::string(help), domain,
                                more.alias, more.local, more.once},
                .kind = kind_of(Value(Plain{})),
                .optional = kOptional,
                .positional = positional,
                .rare = more.rare || (!prefix_.empty() && more.alias.empty()),
                .section = more.section,
                .value = {},
                .origin = {}};
    const Entry& added = add(std::move(entry));
    if (added.origin.empty()) return;
    if constexpr (kOptional) {
      field.reset();
      if (const Plain* set = std::get_if<Plain>(&added.value)) field = *set;
    } else {
      field = std::get<Plain>(added.value);
    }
  }

  const Entry& add(Entry entry);
  size_t enter(std::string_view group);
  void leave(size_t outer) { prefix_.resize(outer); }

  const Sources* sources_;  // used by add() alone, so only during the pass
  std::string prefix_;      // of the groups being declared: "temperature."
  Section section_ = Section::kOther;
  std::vector<Entry> entries_;
  std::vector<Elsewhere> elsewhere_;
  std::map<std::string, std::string, std::less<>> renamed_;
};

}  // namespace tempera::config
