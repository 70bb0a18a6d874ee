#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/dist/world.h"
#include "tempera/models/tokenizer.h"
#include "tempera/nn/model.h"
#include "tempera/train/context_ranks.h"
#include "tempera/train/graph_step.h"
#include "tempera/train/log.h"
#include "tempera/train/options.h"
#include "tempera/train/pace.h"
#include "tempera/train/parallel.h"
#include "tempera/train/plan.h"
#include "tempera/train/run_folder.h"
#include "tempera/train/shards.h"

namespace tempera::train {

// One finished step.
struct StepReport {
  int64_t step = 0;     // steps done, this one included
  int64_t steps = 0;    // of the whole run, as far as known; 0: not known
  double progress = 0;  // share of the budget that is spent
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t tokens = 0;        // of the run so far
  double seconds = 0;        // of the run so far
  double tokens_per_second = 0;
};

struct Validation {
  double loss = 0;  // mean over the predicted tokens of the held-out rows
  double perplexity = 0;
  int64_t targets = 0;
};

// What the owner of a training may want to know or decide; all are optional.
struct TrainEvents {
  std::function<void(const StepReport&)> on_step;
  std::function<void(int64_t step, const Validation&)> on_validation;
  Say say;
  // The number of a signal after which to save and stop with Interrupted; 0: none.
  std::function<int()> signal;
  // What a person types to go on, for the message of Interrupted.
  std::string command;
};

struct Best {
  int64_t step = 0;
  double loss = 0;
};

struct TrainResult {
  int64_t step = 0;
  int64_t first_step = 0;  // where this process began
  int64_t tokens = 0;
  double seconds = 0;
  double loss = 0;  // of the last step that this process did; NaN: it did none
  std::optional<Validation> validation;
  std::optional<Best> best;
};

// The rows of a stage: `length` tokens each where the data can choose.
using DataForStage =
    std::function<std::shared_ptr<const data::Dataset>(size_t stage, int64_t length)>;

// Trains one model. No global state: several can run in threads of one process, each with the
// number of threads that at::set_num_threads gave its own thread. On the CPU the losses are the
// same bits for the same options, data and number of threads, in one run or in several.
class Trainer {
 public:
  // Opens the data of all stages and checks that the model takes it. `tokenizer` is kept in the
  // checkpoints; `learned`: what changes, all parameters where none are given.
  Trainer(const TrainOptions& options, std::shared_ptr<nn::Model> model, const DataForStage& data,
          TrainEvents events, models::StoredTokenizer tokenizer = {},
          std::vector<nn::NamedParameter> learned = {});

  // Trains with the other ranks of this world, each on its rows of every step; before attach().
  // The world must outlive the trainer. Throws where ranks do not agree on what they do.
  void join(dist::World& world);
  // Goes on from the newest checkpoint of the folder if there is one, and saves there from now on.
  // The folder must outlive the trainer. Without this call nothing is written. tensorboard: where
  // the log is written as events, too; empty: nowhere.
  void attach(RunFolder& folder, const std::filesystem::path& tensorboard = {});
  // The same for the other ranks, while the first calls attach(): the folder is the first's.
  void attach_to_first();

  // Trains to the end of the budget. Throws Interrupted after a signal, with everything saved, and
  // Error where the loss is no longer finite or a checkpoint cannot be written.
  TrainResult run();

  // The loss on the held-out rows that validation reads.
  std::optional<Validation> validate();
  nn::Model& model() { return *model_; }
  int64_t step() const { return position_.step; }

 private:
  struct Position {
    int64_t step = 0;
    int64_t tokens = 0;
    double seconds = 0;
    std::optional<Best> best;
  };

  const PlannedStage& stage_of(int64_t step) const;
  // Of the rows of a step: the first that is this rank's, and the first behind them.
  std::pair<int64_t, int64_t> rows_of_rank(int64_t rows) const;
  // How many parts the rows are cut into.
  int64_t row_parts() const { return world_->size() / options_.context_ranks; }
  // With the targets that are this rank's.
  nn::Batch own_batch(nn::Batch batch) const;
  // Of both sides, where the model reads one and writes the other; of rows that ranks share, the
  // first of these ranks counts them.
  int64_t token_count(const nn::Batch& batch) const;
  std::vector<nn::Batch> micro_batches(int64_t step) const;
  nn::Batch batch(int64_t step, int64_t first_row, int64_t rows, torch::Device device) const;
  // Forward and backward of this rank's micro-batches; gives their part of the mean loss over the
  // targets of all ranks.
  double accumulate(const std::vector<nn::Batch>& batches, double targets);
  // Loss and norm of a step with its update: on a GPU one graph where that is possible.
  GraphStep::Result update(int64_t step, double rate);
  void make_graph();
  // None where the batch does not go into a graph.
  std::optional<GraphStep::Result> update_in_graph(int64_t step, double rate);
  void check_finite(const GraphStep::Result& result, int64_t step) const;
  std::string where_it_began(int64_t step) const;
  bool uses_graph(int64_t step) const;
  // The model's rotary base is the stage's from now on.
  void use_base_of(const PlannedStage& stage);
  StepReport train_step();
  double progress() const;
  bool finished() const;
  void note_step(const StepReport& report, bool watched);
  // Of the step just done, for its line of the log; all ranks call it.
  Json watch();
  void after_step(const StepReport& report);
  void note_validation();
  void save();
  void stop_if_asked();
  void restore(const FoundCheckpoint& checkpoint);
  // What this rank updates: the parameters, or its shares of them.
  std::vector<nn::NamedParameter> updated_parameters() const;
  // Of those; its state is made when it is first asked for.
  Optimizer& optimizer();
  // What this rank has of the optimizer's state.
  StretchMap optimizer_stretches();
  // Of the first rank, and of another one.
  Json write_shards(const std::filesystem::path& folder);
  void write_share();
  std::string shard_name() const;
  // What all ranks must share.
  dist::Properties properties() const;
  std::string data_checksum() const;
  std::string last_saved_text() const;
  void say(const std::string& line) const;

  TrainOptions options_;
  std::shared_ptr<nn::Model> model_;
  TrainEvents events_;
  models::StoredTokenizer tokenizer_;
  torch::Device device_;
  std::vector<PlannedStage> stages_;
  std::vector<std::shared_ptr<const data::Dataset>> datasets_;  // one a stage
  int64_t total_steps_ = 0;                                     // 0: other budgets end the run
  std::vector<nn::NamedParameter> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GraphStep> graph_;
  std::optional<GraphFeed> feed_;  // of the graph
  bool said_no_graph_ = false;
  dist::World alone_;
  dist::World* world_ = &alone_;
  std::unique_ptr<ContextRanks> context_;  // of several ranks that share rows
  std::unique_ptr<Parallel> parallel_;     // of several ranks
  Pace pace_;
  bool saves_ = false;
  RunFolder* folder_ = nullptr;  // of the first rank
  std::unique_ptr<RunLog> log_;
  Position position_;
  std::optional<int64_t> saved_step_;
  std::optional<Validation> validation_;
  double last_loss_;
};

}  // namespace tempera::train
