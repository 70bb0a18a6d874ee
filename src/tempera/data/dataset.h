#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tempera::data {

// The target of a position that is not scored.
inline constexpr int64_t kIgnored = -100;

// Rows of equal length, row-major. The model's output at position t of a row predicts targets[t].
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> tokens;   // (rows, length), below the dataset's vocabulary()
  std::vector<int64_t> targets;  // (rows, length), below the dataset's classes(), or kIgnored

  // Instead of targets, for tasks with one answer a row: (rows), below the dataset's classes().
  std::vector<int64_t> labels;

  // How many tokens of each row count, (rows); those behind are padding. None: all of them.
  std::vector<int64_t> lengths;

  // What an encoder reads beside each row, filled up as the rows are. None: nothing.
  int64_t source_length = 0;
  std::vector<int64_t> source;          // (rows, source_length)
  std::vector<int64_t> source_lengths;  // (rows)

  // How much each target counts, (rows, length), 0 or more. None: 1.
  std::vector<float> shares;

  // Where rotary positions have each token, (rows, length), below position_end and growing within a
  // document. None: one behind the other.
  std::vector<int64_t> positions;
  int64_t position_end = 0;
  // What multiplies the attention logits of each position, (rows, length). None: 1.
  std::vector<float> attention_scale;

  // Lengths of the documents packed into each row, in order: (rows, documents), filled up with
  // zeros behind. They sum to the row's length. None: every row is one document.
  int64_t documents = 0;
  std::vector<int64_t> document_lengths;

  // Where the evidence is, for tasks that know it: the q-th question of a row is answered at
  // position question_positions[q], and a model that attends from there to key answer_positions[q]
  // reads the right answer.
  int64_t questions = 0;
  std::vector<int64_t> question_positions;  // (rows, questions)
  std::vector<int64_t> answer_positions;    // (rows, questions)
};

// Which rows of which step. The rows of a step are numbered over the whole batch, so that
// micro-batches and ranks cut it as they like and the union is always the same.
struct BatchRequest {
  uint64_t step = 0;
  int64_t batch_rows = 0;  // rows of the whole step
  int64_t first_row = 0;
  int64_t rows = 0;
};

inline BatchRequest whole_batch(uint64_t step, int64_t rows) {
  return {.step = step, .batch_rows = rows, .first_row = 0, .rows = rows};
}

// One fixed set of rows that no training step gives.
struct HeldOutSet {
  std::string label;
  int64_t size = 0;  // what grows from set to set: entries of a book, distractors, tokens
  int64_t rows = 0;
  int64_t length = 0;  // of a row
};

// What a trainer and an evaluation read. All functions are const and may be called from several
// threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string name() const = 0;
  // Token ids are below it.
  virtual int64_t vocabulary() const = 0;
  // Targets are below it: the size of the output that is scored.
  virtual int64_t classes() const = 0;
  // The longest row of training.
  virtual int64_t train_length() const = 0;
  // A function of the request alone (and of the seed given at construction).
  virtual Batch train(const BatchRequest& request) const = 0;
  virtual const std::vector<HeldOutSet>& held_out_sets() const = 0;
  // Rows [first_row, first_row + rows) of one set; the same for every seed.
  virtual Batch held_out(size_t set, int64_t first_row, int64_t rows) const = 0;
};

// What a model can take; 0 in max_length: no bound.
struct ModelLimits {
  int64_t vocabulary = 0;
  int64_t classes = 0;
  int64_t max_length = 0;
};

// Throws, before any training, where the model cannot take what the dataset gives.
void check_fits(const Dataset& dataset, const ModelLimits& model);

// Throws unless the rows asked for lie inside the batch or the set.
void check_request(const BatchRequest& request);
void check_held_out(const Dataset& dataset, size_t set, int64_t first_row, int64_t rows);

}  // namespace tempera::data
