#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "tempera/eval/bootstrap.h"
#include "tempera/eval/choice_task.h"
#include "tempera/eval/request.h"
#include "tempera/plot/chart.h"

namespace tempera::eval {

struct Metric {
  std::string name;  // lm-eval's: acc, acc_norm, perplexity
  std::vector<double> examples;
  Estimate estimate;
  bool higher_is_better = true;
};

// What a model made of a task's examples.
struct ChoiceScores {
  std::string task;
  std::vector<ChoiceExample> examples;
  std::vector<std::vector<Likelihood>> answers;  // of every example's choices
  std::vector<Metric> metrics;
};

// What stays of scores where the examples are not kept.
struct ChoiceSummary {
  struct Metric {
    std::string name;
    Estimate estimate;
    bool higher_is_better = true;
  };
  std::string task;
  int64_t count = 0;  // of the examples
  std::vector<Metric> metrics;
};

// The requests of the examples, example by example: a group each.
std::vector<Request> requests_of(std::span<const ChoiceExample> examples,
                                 const text::Tokenizer& tokenizer);
// The metrics of the requests' likelihoods.
ChoiceScores summarize(const ChoiceTask& task, std::vector<ChoiceExample> examples,
                       std::span<const Likelihood> likelihoods, int64_t seed = 0);

// lm-eval's layout, with the intervals beside; samples: every example's texts and scores too.
nlohmann::ordered_json to_json(const ChoiceScores& scores, bool samples);
// Of what to_json() wrote.
ChoiceSummary choice_summary_of(const nlohmann::ordered_json& json);
std::string to_text(const ChoiceScores& scores);
plot::Figure to_figure(const ChoiceScores& scores);
plot::Figure to_figure(const ChoiceSummary& summary);

}  // namespace tempera::eval
