#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/nn/model.h"

namespace tempera::eval {

// What a model makes of one held-out set.
struct Scores {
  double loss = 0;      // mean cross-entropy of the targets
  double accuracy = 0;  // share of the targets that got the highest score
  int64_t targets = 0;
  // Where the task knows which key holds the answer: the mean weight that attention puts on it, of
  // the head that puts most.
  std::optional<double> answer_weight = {};
  // The mean entropy, in nats, of these rows' weights in the same head.
  std::optional<double> answer_entropy = {};
  // Mean query scale a_q of each layer.
  std::vector<double> query_scale = {};
  // Of rows with one answer each: the classes answered, and the right ones.
  std::vector<int64_t> answers = {}, labels = {};
};

// Rows [0, rows) of the set (0: all of them), a few at a time. The model is left in eval mode.
Scores score_held_out(nn::Model& model, const data::Dataset& dataset, size_t set, int64_t rows = 0);

// The same for rows that come from elsewhere: all `rows`, each of up to `length` tokens.
using RowSource = std::function<data::Batch(int64_t first, int64_t rows)>;
Scores score_rows(nn::Model& model, int64_t rows, int64_t length, const RowSource& source);

}  // namespace tempera::eval
