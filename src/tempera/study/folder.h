#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tempera/base/output.h"
#include "tempera/config/options.h"
#include "tempera/config/sources.h"
#include "tempera/train/run_folder.h"

namespace tempera::study {

// The folder of a study, which belongs to one process at a time, the first of several ranks:
//
//   run.json   what it was begun with; other settings are refused
//   jobs/      a file a model
//   data/      token shards, where it made some
//   text.json, speed.json   of a study of scaling: what its text is, how fast models learn here
//   results.json, report.html, and the picture of the report
class StudyFolder {
 public:
  // Declares the options of the study over fresh settings.
  using Declare = std::function<config::Options(const config::Sources&)>;

  // verb: as a person types it, "compare" or "study graph". fresh: what an earlier run left makes
  // way. any_build: one that another build of the program began goes on, too.
  StudyFolder(const std::filesystem::path& out, const std::string& verb,
              const config::Options& given, const Declare& declare, bool fresh,
              bool any_build = false);

  // The input is good: the folder stays. What was made until then in a new folder is removed again
  // if that never happens.
  void keep();
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path data_path() const { return path() / "data"; }

 private:
  WorkFolder folder_;
  std::filesystem::path aside_;  // where the earlier run is, if it made way
};

// Where the result of a model is, in the folder of a study.
std::filesystem::path job_file(const std::filesystem::path& folder, const std::string& label,
                               int64_t seed);

// For StudyFolder::Declare.
template <class Settings>
config::Options declare_fresh(const config::Sources& sources) {
  Settings settings;
  config::Options options(sources);
  settings.declare(options);
  return options;
}

}  // namespace tempera::study
