#pragma once

#include <cstdint>
#include <functional>

#include "tempera/eval/grid.h"
#include "tempera/eval/long_task.h"
#include "tempera/nn/model.h"

namespace tempera::eval {

// How many cases score_long_task asks.
int64_t long_task_cases(const LongTask& task, const LongTaskOptions& options);

// An answer is right when every one of its tokens is the likeliest behind those before it, which is
// what greedy decoding would write: one pass tells that. Where a task has choices, the likeliest
// one is the answer. The model may be on any device; a length past its context is tried all the
// same. report(cases done) may throw.
Grid score_long_task(nn::Model& model, const text::Tokenizer& tokenizer, const LongTask& task,
                     const LongTaskOptions& options,
                     const std::function<void(int64_t cases)>& report = {});

}  // namespace tempera::eval
