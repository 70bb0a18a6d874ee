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
using Pass = std::function<Options(const Sources&)>;

// What a command line asks for.
struct CommandLine {
  enum class Action { kRun, kHelp, kDumpConfig };
  Action action = Action::kRun;
  Sources sources;  // the file of --config below the flags
  Options options;  // the declarations that these sources lead to, with their values
};

// Reads the arguments behind the verb: `--name value`, `--name=value`, a bool as `--name` or
// `--name=false`, positional arguments, `--` before arguments that begin with a dash, and the flags
// every verb has: --config FILE, --dump-config, --help. A repeated list adds to what was given
// before it; of other repeated flags the last wins. A flag replaces what the file of --config says,
// a list too. Throws UsageError. Declaring is repeated until no new options appear (a method brings
// its own).
CommandLine parse_command_line(std::span<const std::string> arguments, const Pass& declare);

// The help of a verb: usage, arguments, options with type, range and default.
std::string help_text(std::string_view program, std::string_view verb, std::string_view summary,
                      const Options& options);

struct VerbDescription {
  std::string name;
  Options options;
};

// A script for `source <(PROGRAM completion bash)`.
std::string bash_completion(std::string_view program, std::span<const VerbDescription> verbs);

}  // namespace tempera::config
