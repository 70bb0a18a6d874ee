#include "tempera/study/compare.h"

#include <filesystem>
#include <iostream>

#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"

namespace tempera::cli {
namespace {

struct CompareVerbSettings {
  study::CompareSettings comparison;
  dist::Options ranks;

  void declare(config::Options& options) {
    comparison.declare(options);
    ranks.declare(options);
  }
};

void compare(const study::CompareSettings& settings, dist::World& world) {
  const auto results = study::compare(settings, "compare", world);
  if (!results) return;
  if (settings.json) {
    std::cout << study::as_json(*results).dump(1) << "\n";
  } else {
    std::cout << study::results_text(*results);
  }
  std::cerr << "report: " << (std::filesystem::path(settings.out) / "report.html").string() << "\n";
}

void run(const CompareVerbSettings& settings) {
  settings.comparison.validate();
  run_in_world(settings.ranks, settings.comparison.training.device,
               [&](dist::World& world) { compare(settings.comparison, world); });
}

}  // namespace

Verb compare_verb() {
  return make_verb<CompareVerbSettings>(
      "compare", "trains several methods on the same data and reports which is better",
      {{"tempera compare", "four methods on the built-in phone book: about a minute on two cores"},
       {"tempera compare --text book.txt", "on your text, sized to ten minutes on this machine"},
       {"tempera compare --text book.txt --methods softmax,focal:t=0.4,ssa --seconds 3600",
        "other methods and an hour"}},
      run);
}

}  // namespace tempera::cli
