#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tempera/data/dataset.h"

namespace tempera::data {

// Rows of another dataset, of which those of some steps are cut into short pieces: no position of a
// piece sees the one before it. What is learned at long windows keeps what it knew at short ones.
class ShortWindows final : public Dataset {
 public:
  // share: of the steps, spread evenly. length: tokens of a piece, at most.
  ShortWindows(std::shared_ptr<const Dataset> rows, double share, int64_t length);

  std::string name() const override { return rows_->name(); }
  int64_t vocabulary() const override { return rows_->vocabulary(); }
  int64_t classes() const override { return rows_->classes(); }
  int64_t train_length() const override { return rows_->train_length(); }
  Batch train(const BatchRequest& request) const override;
  const std::vector<HeldOutSet>& held_out_sets() const override { return rows_->held_out_sets(); }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const override {
    return rows_->held_out(set, first_row, rows);
  }

  bool is_short(uint64_t step) const;

 private:
  std::shared_ptr<const Dataset> rows_;
  double share_;
  int64_t length_;
};

}  // namespace tempera::data
