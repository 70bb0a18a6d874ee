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
  std::vector<config::VerbDescription> verbs;
  for (const Verb& verb : all_verbs())
    verbs.push_back({verb.name, verb.declare(config::Sources{})});
  std::cout << config::bash_completion("tempera", verbs);
}

}  // namespace

Verb completion_verb() {
  return make_verb<CompletionSettings>(
      "completion", "prints a completion script: source <(tempera completion bash)", run);
}

}  // namespace tempera::cli
