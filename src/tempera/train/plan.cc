#include "tempera/train/plan.h"

#include <algorithm>

#include "tempera/base/error.h"

namespace tempera::train {

void check_stages(const TrainOptions& options, const DataOptions& data) {
  if (!options.stages.empty() && data.text.empty())
    throw UsageError("--stages need text; other data has lengths of its own");
}

int64_t longest_stage(const TrainOptions& options) {
  int64_t longest = 0;
  for (const Stage& stage : options.stage_list()) longest = std::max(longest, stage.length);
  return longest;
}

std::vector<PlannedStage> plan_stages(const TrainOptions& options, const nn::ModelConfig& model) {
  std::vector<PlannedStage> planned;
  const int64_t step_tokens = options.batch * longest_stage(options);
  PlannedStage next{.length = options.row_length > 0 ? options.row_length : model.context,
                    .rows = options.batch,
                    .rope_base = model.rope.base};
  for (const Stage& stage : options.stage_list()) {
    next.length = stage.length;
    next.rows = step_tokens / stage.length;
    const int64_t tokens = next.rows * next.length;
    next.steps = (stage.tokens + tokens - 1) / tokens;
    if (stage.rope_base > 0) next.rope_base = stage.rope_base;
    planned.push_back(next);
    next.first_step += next.steps;
  }
  if (planned.empty()) planned.push_back(next);
  return planned;
}

void check_ranks(const std::vector<PlannedStage>& stages, int64_t ranks, int64_t context_ranks) {
  if (ranks % context_ranks != 0)
    throw UsageError(concat("--context-ranks ", context_ranks, " given, and ", ranks,
                            ranks == 1 ? " rank" : " ranks",
                            " (--ranks); expected a number that divides the ranks"));
  const int64_t parts = ranks / context_ranks;
  for (const PlannedStage& stage : stages)
    if (stage.rows % parts != 0)
      throw UsageError(
          concat("a step of ", stage.rows, " rows given (--batch), and ", ranks, " ranks",
                 context_ranks > 1 ? concat(", of which ", context_ranks, " share each row") : "",
                 "; expected a multiple of ", parts));
}

int64_t planned_steps(const TrainOptions& options, const std::vector<PlannedStage>& stages) {
  const PlannedStage& last = stages.back();
  const int64_t staged = last.steps > 0 ? last.first_step + last.steps : 0;
  const int64_t given = options.step_budget();
  if (staged == 0 || given == 0) return std::max(staged, given);
  return std::min(staged, given);
}

}  // namespace tempera::train
