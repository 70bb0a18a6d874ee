#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/common.h"
#include "tempera/nn/model.h"
#include "tempera/plot/chart.h"
#include "tempera/text/tokenizer.h"

// Tasks in text, for any model that reads text: questions with choices out of jsonl files, and long
// texts in which something is hidden.
namespace tempera::eval {

struct TextTaskOptions {
  std::vector<std::string> hay = {};  // long tasks: text to hide things in; none: built-in
  std::string file = {};              // jsonl with the task's examples
  int64_t limit = 0;                  // of the examples; 0: all
  std::vector<int64_t> lengths = {512, 1024, 2048};   // long tasks: tokens
  std::vector<double> depths = {0, 25, 50, 75, 100};  // long tasks: % of the text
  int64_t cases = 4;                                  // long tasks: for each length and depth
  int64_t seed = 0;
  bool samples = false;

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
