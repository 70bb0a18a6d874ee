#pragma once

#include <cstdint>
#include <vector>

#include "tempera/nn/config.h"
#include "tempera/train/data_source.h"
#include "tempera/train/options.h"

namespace tempera::train {

// A stage with its place among the steps.
struct PlannedStage {
  int64_t first_step = 0;
  int64_t steps = 0;  // 0: to the end of the run
  int64_t length = 0;
  int64_t rows = 0;  // of a step
  double rope_base = 0;
};

// Throws UsageError where stages are given for data whose lengths cannot be chosen.
void check_stages(const TrainOptions& options, const DataOptions& data);

// 0 where none are given.
int64_t longest_stage(const TrainOptions& options);

// One stage where none are given. Rows are as many as keep the tokens of a step those of `batch`
// rows of the longest stage.
std::vector<PlannedStage> plan_stages(const TrainOptions& options, const nn::ModelConfig& model);

// Throws UsageError where so many ranks, of which `context_ranks` share each row, cannot cut the
// steps into equal parts.
void check_ranks(const std::vector<PlannedStage>& stages, int64_t ranks, int64_t context_ranks);

// Of the whole run; 0: tokens or seconds end it.
int64_t planned_steps(const TrainOptions& options, const std::vector<PlannedStage>& stages);

}  // namespace tempera::train
