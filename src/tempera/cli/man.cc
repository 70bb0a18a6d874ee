#include <iostream>

#include "tempera/base/version.h"
#include "tempera/cli/verb.h"

namespace tempera::cli {
namespace {

struct ManSettings {
  void declare(config::Options&) {}
};

void run(const ManSettings&) {
  std::cout << config::manual_page("tempera", version(), kSummary, describe_verbs());
}

}  // namespace

Verb man_verb() {
  return make_verb<ManSettings>("man", "prints the manual page",
                                {{"tempera man | man -l -", "read it"}}, run);
}

}  // namespace tempera::cli
