#include "tempera/study/folder.h"

#include <cctype>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/config/settings.h"

namespace tempera::study {

namespace fs = std::filesystem;

StudyFolder::StudyFolder(const fs::path& out, const std::string& verb, const config::Options& given,
                         const Declare& declare, bool fresh, bool any_build)
    : folder_(out, {"jobs", "data", "made-text.txt", "sizing.json", "text.json", "speed.json",
                    "results.json", "cells.csv", "report.html", "report.svg", "report.png"}) {
  const auto mark = train::read_mark(folder_, verb);
  if (mark && fresh) aside_ = folder_.set_aside();
  if (!mark || fresh) {
    train::write_mark(folder_, {.verb = verb, .settings = config::to_json(given)});
    return;
  }
  config::Sources sources;
  sources.add_json(mark->settings, folder_.mark().string());
  const config::Options stored = declare(sources);
  stored.check_known(sources);
  const auto differences = config::differences(given, stored);
  if (!differences.empty())
    throw UsageError(
        concat(out.string(), " holds a study with other settings:\n", config::to_text(differences),
               "give another folder with --out, or --fresh to begin anew (what is there "
               "is moved to a folder in it)"));
  if (!any_build) train::refuse_other_build(folder_, *mark);
}

void StudyFolder::keep() {
  fs::create_directories(path() / "jobs");
  folder_.keep();
  if (!aside_.empty()) std::cerr << "the earlier results are in '" << aside_.string() << "' now\n";
}

fs::path job_file(const fs::path& folder, const std::string& label, int64_t seed) {
  std::string name = label;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '=') c = '_';
  return folder / "jobs" / concat(name, "-seed", seed, ".json");
}

}  // namespace tempera::study
