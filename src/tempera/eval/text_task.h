#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/eval/long_task.h"
#include "tempera/nn/model.h"
#include "tempera/plot/chart.h"
#include "tempera/text/tokenizer.h"

// Tasks in text, for any model that reads text: questions with choices out of jsonl files, and long
// texts in which something is hidden.
namespace tempera::eval {

struct TextTaskOptions {
  int64_t limit = 0;     // examples of a file, at most; 0: all
  bool samples = false;  // every example's texts and scores in the result
  int64_t cases = 0;     // of the tasks that make their texts; 0: 4 a depth, 20 a length of RULER
  LongTaskOptions task;  // of the long tasks; its file is that of questions with choices too

  // With the number of cases for one of the long tasks.
  LongTaskOptions long_task() const;
  // All but the hay, which a verb gets from its option for text.
  void declare(config::Options& options);
};

struct TextTaskResult {
  nlohmann::ordered_json document;
  std::string text;
  plot::Figure figure;
};

bool is_text_task(std::string_view name);
std::vector<std::string> text_task_names();

// report(done, all) counts requests; it may throw.
TextTaskResult run_text_task(std::string_view name, nn::Model& model,
                             const text::Tokenizer& tokenizer, const TextTaskOptions& options,
                             const std::function<void(int64_t done, int64_t all)>& report = {});

}  // namespace tempera::eval
