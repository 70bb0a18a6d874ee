#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tempera/dist/world.h"
#include "tempera/study/scaling/results.h"
#include "tempera/study/scaling/tuning.h"
#include "tempera/study/scaling/worker.h"

namespace tempera::study::scaling {

// How the models of a study are trained, beside what they are.
struct RunOptions {
  int64_t jobs = 0;          // at the same time; 0: one a core, or kJobsOnGpu
  double seconds = 0;        // of this call; 0: no bound
  double save_seconds = 60;  // between checkpoints of a model
  bool any_build = false;
  std::string command;  // what a person types to go on
};

// Small models keep a GPU busy only together.
inline constexpr int64_t kJobsOnGpu = 8;

// What a study has so far.
struct Progressed {
  TuningState tuning;
  std::vector<JobResult> results;  // of what is done
  size_t left = 0;                 // models that are not
  std::vector<std::string> notes;  // on what was chosen and left out; a sentence each
};

// Trains what is not done yet, the longest first, in processes of its own; several ranks share the
// models. Throws Interrupted after a signal, with everything saved; ends by itself, with less,
// where `seconds` are over. Gives the first rank what there is.
std::optional<Progressed> run_study(const Plan& plan, const WorkerSetup& setup,
                                    const RunOptions& options, dist::World& world);

}  // namespace tempera::study::scaling
