#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/data/text_dataset.h"

namespace tempera::data {

// Examples of unequal length, each in a row of its own that is filled up to the longest of its
// batch. Rows of like length come together: the examples of some steps are drawn, sorted by length
// and cut into batches, which come in random order. Step k is known from the seed and k alone, and
// an epoch has every example once.
class ExampleDataset : public Dataset {
 public:
  std::string name() const final { return name_; }
  int64_t train_length() const final { return length_; }
  Batch train(const BatchRequest& request) const final;
  // One set (none where nothing is held out), ordered by length.
  const std::vector<HeldOutSet>& held_out_sets() const final { return held_out_sets_; }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const final;

  // Examples [first, first + rows) of those that are not held out, in the order of the files.
  Batch in_order(int64_t first, int64_t rows) const;
  int64_t train_examples() const { return static_cast<int64_t>(train_.size()); }

 protected:
  // sizes: tokens of each example, after which they are sorted. options.held_out: share that is not
  // trained on.
  ExampleDataset(std::string name, std::vector<int64_t> sizes, const TextOptions& options);
  virtual Batch batch_of(std::span<const size_t> examples) const = 0;

 private:
  std::vector<size_t> step_examples(uint64_t step, int64_t rows) const;
  bool shorter(size_t a, size_t b) const;

  std::string name_;
  std::vector<int64_t> sizes_;
  int64_t length_;
  uint64_t order_seed_, batch_seed_;
  std::vector<size_t> train_, held_out_;
  std::vector<HeldOutSet> held_out_sets_;
};

// Rows of unequal length as one block.
struct PaddedRows {
  int64_t length = 0;
  std::vector<int64_t> tokens;   // (rows, length)
  std::vector<int64_t> lengths;  // (rows)
};
PaddedRows pad_rows(std::span<const std::span<const int64_t>> rows, int64_t pad);

}  // namespace tempera::data
