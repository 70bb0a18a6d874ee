#pragma once

#include <cstdint>
#include <memory>

#include "tempera/data/changed_rows.h"

namespace tempera::data {

// Rows of another dataset, but for some steps, whose rows are plain ones cut into short pieces: no
// position of a piece sees the one before it. What is learned at long windows keeps what it knew at
// short ones.
class ShortWindows final : public ChangedRows {
 public:
  // plain: what is cut, `rows` before anything was done to them. share: of the steps, spread
  // evenly. length: tokens of a piece, at most.
  ShortWindows(std::shared_ptr<const Dataset> rows, std::shared_ptr<const Dataset> plain,
               double share, int64_t length);

  Batch train(const BatchRequest& request) const override;

  bool is_short(uint64_t step) const;

 private:
  std::shared_ptr<const Dataset> plain_;
  double share_;
  int64_t length_;
};

}  // namespace tempera::data
