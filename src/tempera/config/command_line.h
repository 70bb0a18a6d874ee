#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/config/sources.h"

namespace tempera::config {

// Declares a verb's options over fresh settings.
using Declare = std::function<Options(const Sources&)>;

// What a command line asks for.
struct CommandLine {
  enum class Action { kRun, kHelp, kHelpAll, kDumpConfig };
  Action action = Action::kRun;
  Sources sources;  // the file of --config below the flags
  Options options;  // the declarations that these sources lead to, with their values
};

// Reads the arguments behind the verb: `--name value`, `--name=value`, a bool as `--name` or
// `--name=false`, positional arguments, `--` before arguments that begin with a dash, and the flags
// every verb has: --config FILE, --dump-config, --help, --help-all. A repeated list adds to what
// was given before it; of other repeated flags the last wins. A flag replaces what the file of
// --config says, a list too. Throws UsageError. Declaring is repeated until no new options appear
// (a method brings its own).
CommandLine parse_command_line(std::span<const std::string> arguments, const Declare& declare);

// A command and what it does.
struct Example {
  std::string command;
  std::string meaning;
};

// What the help, the manual and the completion tell of a verb.
struct VerbDescription {
  std::string name;
  std::string summary;  // one line
  std::vector<Example> examples;
  Options options;
};

// The help of a verb: usage, examples, arguments, options by section with type, range and default.
// Without `all` it leaves out what few need and says how much that is.
std::string help_text(std::string_view program, const VerbDescription& verb, bool all);

// The manual of the whole program, for man(1).
std::string manual_page(std::string_view program, std::string_view version,
                        std::string_view summary, std::span<const VerbDescription> verbs);

// A script for `source <(PROGRAM completion bash)`.
std::string bash_completion(std::string_view program, std::span<const VerbDescription> verbs);

}  // namespace tempera::config
