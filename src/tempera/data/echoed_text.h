#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "tempera/data/changed_rows.h"

namespace tempera::data {

struct EchoOptions {
  double share = 0;     // of the tokens of a row that are an echo, on average
  int64_t length = 32;  // tokens of an echo
  double weight = 5;    // how much a token of an echo counts in the loss; others count 1
  uint64_t until = std::numeric_limits<uint64_t>::max();  // the first step without echoes
  uint64_t seed = 0;
};

// Rows of text in which spans come again: to predict the copy, a model has to find what it copies.
// An echo overwrites a span with an earlier one of the same document. Distances are uniform from
// one span to the whole document, and the place is uniform among those that the distance leaves.
//
// The first tokens of an echo are not scored, nor is the one behind it: nothing tells them.
class EchoedText final : public ChangedRows {
 public:
  // The first tokens of a span that cannot be known yet.
  static int64_t lead(int64_t length) { return length / 4 < 6 ? length / 4 : 6; }

  EchoedText(std::shared_ptr<const Dataset> rows, const EchoOptions& options);

  // A function of the request and the seed alone.
  Batch train(const BatchRequest& request) const override;

 private:
  EchoOptions options_;
};

}  // namespace tempera::data
