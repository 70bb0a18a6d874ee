#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tempera/study/scaling/job.h"

namespace tempera::study::scaling {

// The results of a plan's jobs in the folder, as far as they are there.
class ResultFolder {
 public:
  ResultFolder(std::filesystem::path jobs, bool any_build);
  const JobResult* find(const Job& job) const;
  // One that a worker wrote.
  void read(const Job& job);
  // Of processes that were killed: halves of results, and models whose result was just written.
  void remove_leftovers(const std::vector<Job>& known, bool keep_models) const;

 private:
  std::filesystem::path jobs_;
  bool any_build_;
  std::map<std::string, JobResult> results_;
};

}  // namespace tempera::study::scaling
