#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tempera/config/options.h"
#include "tempera/config/sources.h"
#include "tempera/train/run_folder.h"

namespace tempera::study {

// The folder of a study, which belongs to one process at a time:
//
//   settings.json   what it was begun with; other settings are refused
//   jobs/           a file a model
//   results.json, report.html, and the picture of the report
class StudyFolder {
 public:
  // Declares the options of the study over fresh settings.
  using Declare = std::function<config::Options(const config::Sources&)>;

  StudyFolder(const std::filesystem::path& out, const config::Options& given,
              const Declare& declare);
  // Leaves no trace of a new folder in which no study began.
  ~StudyFolder();
  StudyFolder(const StudyFolder&) = delete;
  StudyFolder& operator=(const StudyFolder&) = delete;

  // The input is good: the folder stays.
  void begin();
  std::filesystem::path result_file(const std::string& label, int64_t seed) const;
  const std::filesystem::path& path() const { return out_; }

 private:
  std::filesystem::path out_;
  config::Options given_;
  bool fresh_;
  bool begun_ = false;
  train::FolderLock lock_;
};

// For StudyFolder::Declare.
template <class Settings>
config::Options declare_fresh(const config::Sources& sources) {
  Settings settings;
  config::Options options(sources);
  settings.declare(options);
  return options;
}

}  // namespace tempera::study
