#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tempera/config/common.h"
#include "tempera/config/options.h"
#include "tempera/train/optimizer.h"
#include "tempera/train/schedule.h"

namespace tempera::train {

// A part of a run with its own context length.
struct Stage {
  int64_t length = 0;
  int64_t tokens = 0;    // how many tokens of training it has; a last step is done whole
  double rope_base = 0;  // 0: as before

  bool operator==(const Stage&) const = default;
};

// "LENGTH:TOKENS" or "LENGTH:TOKENS:ROPE_BASE"; throws UsageError.
Stage parse_stage(const std::string& text);

// What each of several ranks keeps a share of; the rest it has whole, as every other rank.
enum class Sharding {
  kNone,
  kOptimizer,  // the state of the optimizer (ZeRO-1)
  kGradients,  // and the sums of the gradients (ZeRO-2)
  kAll         // and the parameters, which are whole block by block while a pass needs them
};

// How a model is trained; every number that the result depends on, beside the model's shape and the
// data.
struct TrainOptions {
  int64_t steps = 0;   // 0: 1000, unless tokens, seconds or stages say how long
  int64_t tokens = 0;  // 0: no bound
  double seconds = 0;  // 0: no bound
  int64_t batch = 16;
  int64_t row_length = 0;   // tokens of a row; 0: the model's context
  int64_t micro_batch = 0;  // rows that go through the model at once; 0: all
  std::vector<std::string> stages;
  double label_smoothing = 0;
  bool recompute = false;
  int64_t seed = 0;
  config::Dtype dtype = config::Dtype::kFloat32;
  OptimizerOptions optimizer;
  Schedule schedule;
  int64_t eval_every = 100;  // 0: only at the end
  int64_t eval_rows = 64;
  int64_t save_every = 100;  // 0: only at the end
  int64_t log_every = 10;
  int64_t watch_every = 100;  // 0: never
  int64_t keep = 2;
  config::Device device = config::Device::kAuto;
  Sharding sharding = Sharding::kOptimizer;
  int64_t context_ranks = 1;  // of all ranks, how many share each sequence

  // Without `seconds` where the owner has a budget of time of its own.
  void declare(config::Options& options, bool with_seconds = true);
  // What matters to several ranks alone.
  void declare_ranks(config::Options& options);
  static void declare_context_ranks(config::Options& options, int64_t& ranks);
  // Throws UsageError where options contradict each other.
  void validate() const;
  std::vector<Stage> stage_list() const;
  // 0: other budgets end the run.
  int64_t step_budget() const;
};

// What the built-in tasks are trained with unless told otherwise.
TrainOptions task_training();

}  // namespace tempera::train
