#include "tempera/study/scaling/results.h"

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/study/pool.h"
#include "tempera/study/scaling/worker.h"

namespace tempera::study::scaling {

namespace fs = std::filesystem;

ResultFolder::ResultFolder(fs::path jobs, bool any_build)
    : jobs_(std::move(jobs)), any_build_(any_build) {
  if (!fs::exists(jobs_)) return;
  for (const auto& entry : fs::directory_iterator(jobs_)) {
    const fs::path& file = entry.path();
    if (file.extension() != ".json" || !entry.is_regular_file() ||
        file.filename().string().starts_with("."))
      continue;
    JobResult result = result_of(read_json(file), file.string());
    TEMPERA_CHECK(any_build_ || result.build == build_id(), file.string(),
                  " was made by another build of tempera (", result.build, "; this one is ",
                  build_id(),
                  "); give --any-build to go on all the same, or --fresh to begin anew");
    results_.emplace(result.job.id(), std::move(result));
  }
}

const JobResult* ResultFolder::find(const Job& job) const {
  const auto found = results_.find(job.id());
  return found == results_.end() ? nullptr : &found->second;
}

void ResultFolder::read(const Job& job) {
  const fs::path file = result_file(jobs_, job);
  results_.insert_or_assign(job.id(), result_of(read_json(file), file.string()));
}

void ResultFolder::remove_leftovers(const std::vector<Job>& known, bool keep_models) const {
  std::vector<std::string> names;
  for (const Job& job : known) {
    names.push_back(result_file(jobs_, job).filename());
    if (!keep_models && find(job)) fs::remove_all(job_folder(jobs_, job));
  }
  remove_parts(jobs_, names);
}

}  // namespace tempera::study::scaling
