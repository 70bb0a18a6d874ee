#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/mappings.h"
#include "tempera/base/suggest.h"
#include "tempera/base/version.h"
#include "tempera/cli/failure.h"
#include "tempera/cli/verb.h"
#include "tempera/cli/version.h"
#include "tempera/config/command_line.h"
#include "tempera/dist/environment.h"
#include "tempera/dist/launch.h"
#include "tempera/dist/watch.h"

namespace tempera::cli {
namespace {

enum ExitCode { kDone = 0, kFailed = 1, kWrongUsage = 2, kSignalBase = 128 };

void print_help(std::ostream& out) {
  out << "Usage: tempera VERB [options]\n" << kSummary << ".\n\nVerbs:\n";
  size_t width = 0;
  for (const Verb& verb : all_verbs()) width = std::max(width, verb.name.size());
  for (const Verb& verb : all_verbs())
    out << "  " << verb.name << std::string(width - verb.name.size() + 2, ' ') << verb.help << "\n";
  out << "\n`tempera VERB --help` shows examples and options of a verb, `tempera man | man -l -` "
         "the manual,\n`tempera --version` the version. No idea where to start? `tempera compare` "
         "takes a minute.\n";
}

void print_version(std::span<const std::string> options) {
  if (options.empty()) {
    std::cout << "tempera " << version() << "\n";
  } else if (options.size() == 1 && options[0] == "--json") {
    std::cout << version_json() << "\n";
  } else {
    throw UsageError(concat("--version ", options[0],
                            " is not known; --version alone or --version "
                            "--json expected"));
  }
}

bool is_verb(const std::string& name) {
  return std::ranges::any_of(all_verbs(), [&](const Verb& verb) { return verb.name == name; });
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& verb : all_verbs()) {
    if (verb.name == name) return verb;
    names.push_back(verb.name);
  }
  const std::string what = name.starts_with('-') ? "option " : "verb ";
  if (name.starts_with('-')) names = {"--help", "--version"};
  throw UsageError(concat("unknown ", what, name, did_you_mean(name, names)));
}

void run_verb(const Verb& verb, std::span<const std::string> arguments) {
  using Action = config::CommandLine::Action;
  const config::CommandLine line = config::parse_command_line(arguments, verb.declare);
  switch (line.action) {
    case Action::kHelp:
    case Action::kHelpAll:
      std::cout << config::help_text("tempera", verb.describe(line.options),
                                     line.action == Action::kHelpAll);
      return;
    case Action::kDumpConfig:
      std::cout << config::dump_toml(line.options);
      return;
    case Action::kRun:
      try {
        verb.run(line.sources);
      } catch (const c10::Error& error) {
        throw Error(torch_failure(error, line.options));
      }
      return;
  }
}

void run_program(std::span<const std::string> arguments) {
  if (arguments.empty()) {
    print_help(std::cerr);
    throw UsageError("a verb is missing");
  }
  const std::string& first = arguments[0];
  if (first == "--help" || first == "-h" || first == "help")
    print_help(std::cout);
  else if (first == "--version")
    print_version(arguments.subspan(1));
  else
    run_verb(find_verb(first), arguments.subspan(1));
  // A full disk or a closed pipe shows only here.
  TEMPERA_CHECK(std::cout.flush(), "cannot write the result to standard output");
}

// Freed memory is kept for the next step. Given back to the system, every large tensor of a
// training step would be mapped and zeroed anew: 5 % of the time of a small model.
void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, 64 << 20);
#endif
}

// Who speaks, where several processes do.
std::string rank_name() {
  try {
    const auto place = dist::place_from_environment();
    return place && place->size > 1 ? concat("rank ", place->rank, ": ") : "";
  } catch (const UsageError&) {
    return "";  // which is the error that is told here
  }
}

// The only place where errors end.
int guarded_main(std::span<const std::string> arguments) {
  // Otherwise the limit on file sizes would kill the process, where a failed write can be reported.
  std::signal(SIGXFSZ, SIG_IGN);
  explain_lost_mappings();
  keep_freed_memory();
  try {
    run_program(arguments);
    return kDone;
  } catch (const Interrupted& error) {
    if (*error.what()) std::cerr << error.what() << "\n";
    return kSignalBase + error.signal();
  } catch (const dist::RanksFailed& error) {
    return error.code();
  } catch (const dist::RankFailure& error) {
    if (!error.silent()) std::cerr << "tempera: " << rank_name() << error.what() << "\n";
    dist::write_error_file(error.what());
    return kFailed;
  } catch (const UsageError& error) {
    dist::write_error_file(error.what());
    std::cerr << "tempera: " << rank_name() << error.what() << "\n"
              << "`tempera "
              << (arguments.empty() || !is_verb(arguments[0]) ? "" : arguments[0] + " ")
              << "--help` shows the usage.\n";
    return kWrongUsage;
  } catch (const std::exception& error) {
    dist::write_error_file(error.what());
    std::cerr << "tempera: " << rank_name() << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace
}  // namespace tempera::cli

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const int code = tempera::cli::guarded_main(arguments);
  // Without the destructors of torch, which take its operators out of their tables one by one: a
  // quarter of the time of a short run.
  std::cout.flush();
  std::_Exit(code);
}
