#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/eval/held_out.h"
#include "tempera/eval/perplexity.h"
#include "tempera/plot/chart.h"

// What an evaluation found, as JSON, as a table for a terminal and as a picture.
namespace tempera::eval {

struct SizeScores {
  int64_t size = 0;  // entries of a book, distractors, tokens
  int64_t rows = 0;
  Scores scores;
};

nlohmann::ordered_json to_json(const std::vector<SizeScores>& list);
// What to_json() wrote.
std::vector<SizeScores> size_scores_of(const nlohmann::ordered_json& json);
std::string to_text(const std::vector<SizeScores>& list);
plot::Figure to_figure(const std::string& task, const std::vector<SizeScores>& list);

// With the interval of the perplexity, where the blocks of the text are known: by drawing them
// again.
nlohmann::ordered_json to_json(const TextScores& scores);
// What to_json() wrote.
TextScores text_scores_of(const nlohmann::ordered_json& json);
std::string to_text(const TextScores& scores);
plot::Figure to_figure(const std::string& name, const TextScores& scores);

}  // namespace tempera::eval
