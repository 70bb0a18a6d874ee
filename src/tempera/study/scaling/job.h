#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/study/scaling/grid.h"

// A model of a study as a piece of work, and what came of it.
namespace tempera::study::scaling {

enum class Purpose {
  kSweep,  // one of some learning rates at a small size
  kCheck,  // of some at a larger one
  kCell    // of the grid
};

struct Job {
  Purpose purpose = Purpose::kCell;
  Cell cell;
  double learning_rate = 0;

  // A name for files, the same whenever and wherever it is made, and another for any other job.
  std::string id() const;
  // For the progress.
  std::string label() const;
  bool operator==(const Job&) const = default;
};

nlohmann::ordered_json to_json(const Job& job);
// What to_json() wrote, or begins with it.
Job job_of(const nlohmann::ordered_json& json);

enum class Outcome {
  kDone,
  kDiverged,     // the loss was no number, or in the end above that of knowing nothing
  kOutOfMemory,  // also with one row at a time
  kLost          // its process ended by itself, twice
};
const char* name_of(Outcome outcome);

// Mean held-out loss in rows of a length.
struct LengthLoss {
  int64_t length = 0;
  double loss = 0;
};

// Share of random tokens that are continued rightly when they come again, in rows of a length.
struct LengthRecall {
  int64_t length = 0;
  double accuracy = 0;
};

struct TaskScore {
  std::string task, metric;
  double value = 0, low = 0, high = 0;
};

struct JobResult {
  Job job;
  Outcome outcome = Outcome::kDone;
  std::string reason = {};  // in words, where it is not done
  int64_t steps = 0, tokens = 0;
  int64_t micro_batch = 0;  // rows at once where memory ran out with all; 0: all
  int64_t temperature_parameters = 0;
  double seconds = 0;                                  // of training
  double passes = 0;                                   // over the text
  std::vector<std::pair<int64_t, double>> curve = {};  // step, training loss
  std::vector<LengthLoss> losses = {};                 // the trained length first
  std::vector<LengthRecall> recall = {};
  std::vector<TaskScore> tasks = {};
  std::optional<double> entropy =
      {};  // of attention at the end of rows of the trained length, in nats
  std::string build = {};

  // At the trained length; none unless it is done.
  std::optional<double> loss() const;
};

nlohmann::ordered_json to_json(const JobResult& result);
// Throws Error, naming the file, where it is not what to_json() wrote.
JobResult result_of(const nlohmann::ordered_json& json, const std::string& file);

}  // namespace tempera::study::scaling
