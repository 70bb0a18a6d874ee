#include "tempera/study/compare.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/cli/verb.h"

namespace tempera::cli {
namespace {

void run(const study::CompareSettings& settings) {
  const auto results = study::compare(settings, "compare");
  if (settings.json) {
    std::cout << results.dump(1) << "\n";
  } else {
    std::cout << study::results_text(results);
  }
  std::cerr << "report: " << (std::filesystem::path(settings.out) / "report.html").string() << "\n";
}

}  // namespace

Verb compare_verb() {
  return make_verb<study::CompareSettings>(
      "compare", "trains several methods on the same data and says which is better", run);
}

}  // namespace tempera::cli
