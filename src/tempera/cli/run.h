#pragma once

#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/shell.h"
#include "tempera/config/settings.h"
#include "tempera/dist/world.h"
#include "tempera/train/data_source.h"
#include "tempera/train/report.h"
#include "tempera/train/run_folder.h"
#include "tempera/train/trainer.h"

// What the verbs share that train in a run folder.
namespace tempera::cli {

// Where a run is and how its verb answers.
struct RunOptions {
  std::string out;
  std::string tensorboard = {};  // empty: nowhere
  bool resume = true;
  int64_t threads = 0;
  bool json = false;

  void declare(config::Options& options);
};

// What a person types to go on.
std::string continue_command(const train::RunFolder& folder);

// Begins a run, or makes sure that the one in the folder is the same.
template <class Settings>
void open_run(train::RunFolder& folder, const Settings& settings, bool resume) {
  const config::Options given = config::describe(settings);
  if (!folder.mark()) {
    folder.begin(config::to_json(given), config::dump_toml(given));
    return;
  }
  const std::string out = folder.path().string();
  if (!resume)
    throw UsageError(concat("'", out,
                            "' holds a run, and --resume=false given; give another "
                            "folder with --out, or remove this one"));
  const auto stored = config::describe(
      config::from_json<Settings>(folder.mark()->settings, (folder.path() / "run.json").string()));
  const auto differences = config::differences(given, stored);
  if (!differences.empty())
    throw UsageError(concat("'", out, "' holds a run with other settings:\n",
                            config::to_text(differences),
                            "give the settings of the run to continue it (",
                            continue_command(folder), "), or another folder with --out"));
  // Training may go on: its numbers are those of the weights, whoever computes the next step.
  if (const std::string other = train::other_build(*folder.mark()); !other.empty())
    std::cerr << "note: the run in '" << out << "' " << other << "\n";
  folder.offer(config::dump_toml(stored));
}

// Reads the data of a run with progress; `own`: the tokenizer of a model that exists.
train::DataSource open_data(const train::DataOptions& data, const train::RunFolder& folder,
                            const std::shared_ptr<const text::Tokenizer>& own = nullptr);

// Of a rank that is not the first: it shows nothing but messages, and those where all are asked to.
train::TrainEvents rank_events(const dist::World& world);

// Throws UsageError unless all ranks share each row.
void check_shared_by_all(int64_t ranks, int64_t context_ranks);

// Runs a job as the ranks that the options and the environment say: starts them, or is one of them,
// or does it alone.
void run_in_world(const dist::Options& options, config::Device device,
                  const std::function<void(dist::World&)>& job);

// One line for the whole training, and before it one that says how long it will take, once the
// first steps have told.
class RunDisplay {
 public:
  explicit RunDisplay(std::string title = "train") : title_(std::move(title)) {}
  // Shows steps and validations here; the display must outlive the trainer.
  train::TrainEvents events(const train::RunFolder& folder);
  // From now on the folder has a report of the run: at validations, and at its end, whatever ends
  // it.
  void keep_report(const train::RunFolder& folder);
  train::TrainResult run(train::Trainer& trainer);
  void finish();

 private:
  void step(const train::StepReport& report);
  void say_duration(const train::StepReport& report);

  std::string title_;
  std::optional<Progress> progress_;
  int64_t tokens_before_ = 0;
  std::optional<train::StepReport> first_;  // of this process
  bool duration_said_ = false;
  std::string validation_;
  std::optional<train::ReportWriter> report_;
};

// What a finished run did, as a few lines or as JSON.
void print_run(const train::TrainResult& result, const std::string& out, nn::Model& model,
               bool json);

}  // namespace tempera::cli
