#pragma once

#include <filesystem>
#include <utility>

#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"
#include "tempera/train/run_folder.h"

// What a training did, as a page. It is made from the folder alone (run.json and log.jsonl), so
// that one of a run that was interrupted, or is still working, can be made too.
namespace tempera::train {

// Throws Error where the folder is not that of a run which logs its steps.
plot::HtmlReport report_of_run(const std::filesystem::path& folder);

// Loss and validation, learning rate and norm of the gradients; entropies and temperatures where
// they were watched. The same training gives the same picture: it has no times.
plot::Figure figure_of_run(const std::filesystem::path& folder);

// Writes report.html into the folder of a run. A training goes on where that fails, as on a full
// disk: then a line says so.
class ReportWriter {
 public:
  ReportWriter(std::filesystem::path folder, Say say)
      : folder_(std::move(folder)), say_(std::move(say)) {}
  // Unless reports would take more than 1 % of the time since the last one.
  void write_sometimes();
  void write();

 private:
  std::filesystem::path folder_;
  Say say_;
  double took_ = 0;   // seconds of the last report
  double ended_ = 0;  // when it was there, by a clock that starts anywhere
};

}  // namespace tempera::train
