#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tempera/config/common.h"
#include "tempera/config/options.h"
#include "tempera/nn/config.h"

// Which models a scaling study trains.
namespace tempera::study::scaling {

struct Shape {
  int64_t layers = 0, width = 0, heads = 0;

  // Of the blocks' matrices: neither embeddings nor what a method adds.
  int64_t parameters() const;
  std::string text() const;  // "6x384x6"
  auto operator<=>(const Shape&) const = default;
};

// "LAYERSxWIDTH", "LAYERSxWIDTHxHEADS" or a number of parameters such as "5M", for which the shape
// that comes nearest is found. Throws UsageError, also where no heads of 64 or 32 columns divide
// the width.
Shape parse_shape(const std::string& text);

// One model. What is the same for all models of a study is in StudyData.
struct Cell {
  Shape shape;
  int64_t context = 0;
  nn::QkNorm qk_norm = nn::QkNorm::kNone;
  std::string method = {};
  int64_t tokens = 0;       // of its training
  int64_t step_tokens = 0;  // of a step
  config::Dtype dtype = config::Dtype::kFloat32;
  int64_t seed = 0;

  int64_t batch() const { return step_tokens / context; }
  int64_t steps() const { return (tokens + step_tokens - 1) / step_tokens; }
  bool operator==(const Cell&) const = default;
};

const char* name_of(nn::QkNorm norm);
nn::QkNorm qk_norm_of(const std::string& name);
// The model of a cell, without its vocabulary.
nn::ModelConfig model_of(const Cell& cell);

// How the learning rate of every model is found.
struct RateRule {
  double fixed = 0;  // of every model, at a width of 128; 0: tuned
  std::vector<double> sweep = {0.5, 1, 2};

  bool operator==(const RateRule&) const = default;
};

// What all models of a study have in common: it cannot change within a folder.
struct StudyData {
  std::vector<std::string> text;
  std::optional<std::string> tokenizer;
  double held_out = 0.05;
  int64_t eval_tokens = 262'144;
  std::vector<std::string> tasks;  // NAME=FILE
  int64_t task_limit = 0;
  RateRule rate;

  void declare(config::Options& options);
  bool operator==(const StudyData&) const = default;
};

// A file of a study: the product of its lists.
struct Grid {
  StudyData data;
  std::vector<std::string> sizes, methods = {"softmax", "ssa"}, qk_norms = {"none"};
  std::vector<int64_t> tokens, contexts = {512};
  std::vector<double> tokens_per_parameter;
  int64_t seeds = 3;
  int64_t step_tokens = 65'536;
  config::Dtype dtype = config::Dtype::kFloat32;

  void declare(config::Options& options);
  // Sorted as the file says: sizes, tokens, contexts, norms, seeds, and methods last. Throws
  // UsageError where there are none or too many, or where one is no model.
  std::vector<Cell> cells() const;
};

// Throws UsageError where two files disagree on what a study has in common.
struct Plan {
  StudyData data;
  std::vector<Cell> cells;           // each once
  std::vector<std::string> methods;  // in the order of the files; the first is the baseline
};
// In place of what the files say; empty: what they say.
struct Given {
  std::vector<std::string> text, tasks = {};
};
Plan read_plan(const std::vector<std::string>& files, const Given& given);
// The same for one grid that is no file; origin: what names it in messages.
Plan make_plan(const std::string& toml, const std::string& origin, const Given& given);

// Five tiny sizes, two methods: minutes on two cores.
extern const char* const kQuickGrid;

}  // namespace tempera::study::scaling
