#include "tempera/config/command_line.h"

#include <algorithm>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"

namespace tempera::config {
namespace {

constexpr std::string_view kOrigin = "the command line";

// A dash before a digit begins a number, a lone dash is standard input; others are flags.
bool looks_like_flag(std::string_view argument) {
  if (argument.size() < 2 || argument[0] != '-') return false;
  return argument[1] == '-' || (argument[1] >= 'a' && argument[1] <= 'z') ||
         (argument[1] >= 'A' && argument[1] <= 'Z');
}

// Two texts of lists as that of one.
std::string joined(const std::string& name, const std::string& first, const std::string& second) {
  std::vector<std::string> elements;
  for (const std::string& text : {first, second}) {
    const Value list = parse_text(name, text, Kind::kTextList, {});
    const auto& more = std::get<std::vector<std::string>>(list);
    elements.insert(elements.end(), more.begin(), more.end());
  }
  return plain_text(Value(std::move(elements)));
}

// One reading of the arguments, with the options known so far.
class Scan {
 public:
  // Strict refuses what it does not know; otherwise that is passed over, for a later reading that
  // may know more.
  Scan(std::span<const std::string> arguments, const Options& options, bool strict)
      : arguments_(arguments), options_(options), strict_(strict) {
    for (at_ = 0; at_ < arguments.size(); ++at_) {
      const std::string& argument = arguments[at_];
      if (!flags_ended_ && argument == "--")
        flags_ended_ = true;
      else if (!flags_ended_ && looks_like_flag(argument))
        flag(argument);
      else
        words_.push_back(argument);
    }
    place_words();
  }

  Sources::Layer layer;
  std::optional<std::string> config;
  bool help = false;
  bool help_all = false;
  bool dump_config = false;

 private:
  void flag(const std::string& argument) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (name == "--help" || name == "-h")
      switch_on(help, name, value);
    else if (name == "--help-all")
      switch_on(help_all, name, value);
    else if (name == "--dump-config")
      switch_on(dump_config, name, value);
    else if (name == "--config")
      config = value ? *value : next(name);
    else if (const Entry* entry = name.starts_with("--") ? options_.find(name.substr(2)) : nullptr)
      known(*entry, name, value);
    else if (strict_)
      unknown(name);
    else if (!value && has_next())
      ++at_;
  }

  static void switch_on(bool& flag, const std::string& name,
                        const std::optional<std::string>& value) {
    if (value) throw UsageError(concat(name, " takes no value, '", *value, "' given"));
    flag = true;
  }

  void known(const Entry& entry, const std::string& name, std::optional<std::string> value) {
    if (!value) value = entry.kind == Kind::kBool ? "true" : next(name);
    Given& given = layer[entry.name()];
    const auto* before = std::get_if<std::string>(&given.value);
    if (before && is_list(entry.kind)) value = joined(name, *before, *value);
    given = Given{*std::move(value), std::string(kOrigin)};
  }

  bool has_next() const {
    return at_ + 1 < arguments_.size() && !looks_like_flag(arguments_[at_ + 1]);
  }

  std::string next(const std::string& name) {
    if (!has_next())
      throw UsageError(concat(name, " needs a value (", name, "=VALUE if it begins with a dash)"));
    return arguments_[++at_];
  }

  [[noreturn]] void unknown(const std::string& name) const {
    if (name.starts_with("--") && name.size() > 2) {
      const std::string hint = options_.hint(name.substr(2));
      if (hint.starts_with(':')) throw UsageError(concat("unknown option ", name, hint));
    }
    std::vector<std::string> flags = {"--help", "--help-all", "--config", "--dump-config"};
    for (const std::string& known : options_.names()) flags.push_back("--" + known);
    throw UsageError(concat("unknown option ", name, did_you_mean(name, flags)));
  }

  // Gives the positional arguments to their options in order; a list takes all that are left.
  void place_words() {
    size_t word = 0;
    for (const Entry& entry : options_.entries()) {
      if (!entry.positional || word == words_.size()) continue;
      if (layer.contains(entry.name()))
        throw UsageError(concat("--", entry.name(), " is given twice: once as '", words_[word],
                                "' by its place"));
      std::string value = words_[word++];
      if (is_list(entry.kind)) {
        std::vector<std::string> rest = {std::move(value)};
        while (word < words_.size()) rest.push_back(words_[word++]);
        value = plain_text(Value(std::move(rest)));
      }
      layer[entry.name()] = Given{std::move(value), std::string(kOrigin)};
    }
    if (strict_ && word < words_.size())
      throw UsageError(concat("unexpected argument '", words_[word], "'"));
  }

  std::span<const std::string> arguments_;
  const Options& options_;
  bool strict_;
  bool flags_ended_ = false;
  size_t at_ = 0;
  std::vector<std::string> words_;
};

Sources sources_of(Scan scan) {
  Sources sources;
  if (scan.config) sources.add_toml_file(*scan.config);
  sources.add(std::move(scan.layer));
  return sources;
}

// Declares until the names no longer change; then every argument can be read.
Options settle(std::span<const std::string> arguments, const Declare& declare) {
  constexpr int kMaxPasses = 8;
  Options options = declare(Sources{});
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const Sources sources = sources_of(Scan(arguments, options, /*strict=*/false));
    Options next = declare(sources);
    const bool settled = next.names() == options.names();
    options = std::move(next);
    if (settled) return options;
  }
  throw Error("the options depend on each other in a circle");
}

}  // namespace

CommandLine parse_command_line(std::span<const std::string> arguments, const Declare& declare) {
  using Action = CommandLine::Action;
  if (const Scan first(arguments, Options{}, /*strict=*/false); first.help || first.help_all) {
    const Action action = first.help_all ? Action::kHelpAll : Action::kHelp;
    // Help is for those whose command line is still wrong.
    try {
      return {action, {}, settle(arguments, declare)};
    } catch (const UsageError&) {
      return {action, {}, declare(Sources{})};
    }
  }
  const Options options = settle(arguments, declare);
  Scan scan(arguments, options, /*strict=*/true);
  const Action action = scan.dump_config ? Action::kDumpConfig : Action::kRun;
  CommandLine result{action, sources_of(std::move(scan)), {}};
  result.options = declare(result.sources);
  result.options.check_known(result.sources);
  if (action == Action::kRun) result.options.check_complete();
  return result;
}

}  // namespace tempera::config
