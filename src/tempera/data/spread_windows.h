#pragma once

#include <cstdint>
#include <memory>

#include "tempera/data/changed_rows.h"

namespace tempera::data {

struct SpreadOptions {
  int64_t context = 0;    // positions are below it
  int64_t parts = 2;      // of a document that move by themselves
  double correction = 1;  // how much of the correction for missing keys; 0: none
  uint64_t seed = 0;
};

// Short rows of text that stand for pieces of long ones: a document is cut into parts, and each
// part moves back in the context by an offset that is drawn. The first stays at the begin.
//
// A row at position p sees the m tokens before it and not the n = p + 1 keys of a whole text. Of
// logits whose noise among n keys has the sum n e^c, a key needs c + log n to take half of the
// weight; among m keys it needs c + log m. Logits times log m / log n put that point back, in both.
class SpreadWindows final : public ChangedRows {
 public:
  SpreadWindows(std::shared_ptr<const Dataset> rows, const SpreadOptions& options);

  // A function of the request and the seed alone.
  Batch train(const BatchRequest& request) const override;

 private:
  SpreadOptions options_;
};

}  // namespace tempera::data
