#include <iostream>
#include <vector>

#include "tempera/cli/verb.h"
#include "tempera/config/command_line.h"

namespace tempera::cli {
namespace {

struct CompletionSettings {
  std::string shell;

  void declare(config::Options& options) {
    options.positional("shell", shell, config::choices({"bash"}), "the shell to print it for");
  }
};

void run(const CompletionSettings&) {
  std::cout << config::bash_completion("tempera", describe_verbs());
}

}  // namespace

Verb completion_verb() {
  return make_verb<CompletionSettings>(
      "completion", "prints a completion script for a shell",
      {{"source <(tempera completion bash)", "complete verbs and options in this shell"}}, run);
}

}  // namespace tempera::cli
