#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/data/random.h"
#include "tempera/eval/bootstrap.h"
#include "tempera/eval/haystack.h"
#include "tempera/plot/chart.h"
#include "tempera/text/tokenizer.h"

// The tasks of RULER (C. Hsieh et al., 2024), which a model answers in its own words, in texts of
// any length, and one more: a needle that has no word in common with its question. The wording is
// our own; docs/reference/evaluation.md lists what differs.
namespace tempera::eval {

struct RulerCase {
  std::vector<int32_t> prompt;          // ends where the answer begins
  std::vector<std::string> references;  // what the answer has to name
};

// What all cases are made from.
struct RulerSource {
  // hay: text and jsonl files; none: built-in sentences.
  RulerSource(const std::vector<std::string>& hay, const text::Tokenizer& tokenizer);

  const text::Tokenizer& tokenizer;
  Haystack text;                   // running text
  Haystack noise;                  // the same few sentences again and again
  std::vector<std::string> words;  // distinct ones, those of the text first
};

struct RulerTask {
  std::string name;
  std::string help;
  int64_t new_tokens = 0;  // of an answer, at most
  // Prompt and answer together have at most `length` tokens. Throws UsageError where nothing fits.
  RulerCase (*make)(const RulerSource& source, int64_t length, data::RandomStream& random);
};

const std::vector<RulerTask>& ruler_tasks();
// "ruler": all of them; "ruler-vt": one. Empty: the name is none of these.
std::vector<RulerTask> find_ruler_tasks(std::string_view name);
std::vector<std::string> ruler_task_names();

// The share of the references that an answer names, in any case of the letters.
double ruler_recall(std::string_view answer, std::span<const std::string> references);

struct RulerOptions {
  std::vector<std::string> hay = {};
  std::vector<int64_t> lengths = {512, 1024, 2048};
  int64_t cases = 20;  // of each task and length
  int64_t seed = 0;
  bool samples = false;  // prompts and answers in the result
};

// Answers to some prompts. `enough` tells from what is written of an answer so far whether more
// could still change its score.
using RulerWriter = std::function<std::vector<std::string>(
    std::span<const RulerCase> cases, int64_t new_tokens,
    const std::function<bool(size_t index, std::string_view so_far)>& enough)>;

struct RulerSample {
  std::string prompt, answer;
  std::vector<std::string> references;
  double score = 0;
};

struct RulerCell {
  std::string task;
  int64_t length = 0;
  int64_t new_tokens = 0;
  int64_t cases = 0;
  double score = 0;  // summed over the cases, each from 0 to 1
  std::vector<RulerSample> samples = {};

  // Wilson's interval of a share: too wide rather than too narrow for scores between 0 and 1.
  Estimate mean() const { return binomial(score / static_cast<double>(cases), cases); }
};

struct RulerScores {
  std::string name;
  std::vector<int64_t> lengths;
  std::vector<RulerCell> cells;  // task by task, each at all lengths

  size_t tasks() const { return cells.size() / lengths.size(); }
  const RulerCell& cell(size_t task, size_t length) const {
    return cells.at(task * lengths.size() + length);
  }
  // Over all tasks.
  Estimate at_length(size_t length) const;
};

int64_t ruler_cases(std::string_view name, const RulerOptions& options);

// report(cases done) may throw.
RulerScores score_ruler(std::string_view name, const text::Tokenizer& tokenizer,
                        const RulerOptions& options, const RulerWriter& write,
                        const std::function<void(int64_t cases)>& report = {});

nlohmann::ordered_json to_json(const RulerScores& scores);
// What to_json() wrote, without the samples. Throws Error where a task lacks a length.
RulerScores ruler_scores_of(const nlohmann::ordered_json& json);
std::string to_text(const RulerScores& scores);
plot::Figure to_figure(const RulerScores& scores);

// The tasks whose texts are lists of words.
RulerCase make_common_words(const RulerSource& source, int64_t length, data::RandomStream& random);
RulerCase make_frequent_words(const RulerSource& source, int64_t length,
                              data::RandomStream& random);
// A needle without a word of its question.
RulerCase make_association(const RulerSource& source, int64_t length, data::RandomStream& random);

// What somebody did or is, and the question that it answers.
struct Association {
  std::string_view fact;  // with {} for the name
  std::string_view question;
};
std::span<const Association> associations();

}  // namespace tempera::eval
