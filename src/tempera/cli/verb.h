#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tempera/config/command_line.h"
#include "tempera/config/settings.h"

namespace tempera::cli {

// A verb of the program: `tempera NAME ...`.
struct Verb {
  std::string name;
  std::string help;  // one line
  std::vector<config::Example> examples;
  std::function<config::Options(const config::Sources&)> declare;
  std::function<void(const config::Sources&)> run;

  // With the options that such a command line leads to.
  config::VerbDescription describe(config::Options options) const {
    return {name, help, examples, std::move(options)};
  }
};

// A verb over a settings struct with declare(config::Options&). Results go to standard output,
// messages and progress to standard error, failures are thrown.
template <class Settings>
Verb make_verb(std::string name, std::string help, std::vector<config::Example> examples,
               void (*run)(const Settings&)) {
  return {std::move(name), std::move(help), std::move(examples),
          [](const config::Sources& sources) {
            Settings settings;
            config::Options options(sources);
            settings.declare(options);
            return options;
          },
          [run](const config::Sources& sources) { run(config::from_sources<Settings>(sources)); }};
}

// Bytes of the files that verbs read whole: texts, and the state beside a checkpoint.
inline constexpr uint64_t kLargestText = uint64_t{1} << 30;
inline constexpr uint64_t kLargestState = uint64_t{64} << 20;

// What the program is, in one line.
inline constexpr const char* kSummary = "Transformers whose attention has a temperature";

// The table of all verbs, in the order of the help.
std::span<const Verb> all_verbs();
// As the manual and the completion tell of them.
std::vector<config::VerbDescription> describe_verbs();

}  // namespace tempera::cli
