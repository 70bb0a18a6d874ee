#include "tempera/study/compare.h"

#include <filesystem>
#include <iostream>

#include "tempera/cli/verb.h"

namespace tempera::cli {
namespace {

void run(const study::CompareSettings& settings) {
  const auto results = study::compare(settings, "compare");
  if (settings.json) {
    std::cout << study::as_json(results).dump(1) << "\n";
  } else {
    std::cout << study::results_text(results);
  }
  std::cerr << "report: " << (std::filesystem::path(settings.out) / "report.html").string() << "\n";
}

}  // namespace

Verb compare_verb() {
  return make_verb<study::CompareSettings>(
      "compare", "trains several methods on the same data and reports which is better",
      {{"tempera compare", "four methods on the built-in phone book: about a minute on two cores"},
       {"tempera compare --text book.txt", "on your text, sized to ten minutes on this machine"},
       {"tempera compare --text book.txt --methods softmax,focal:t=0.4,ssa --seconds 3600",
        "other methods and an hour"}},
      run);
}

}  // namespace tempera::cli
