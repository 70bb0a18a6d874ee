#pragma once

#include <cstdint>
#include <vector>

#include "tempera/nn/model.h"

namespace tempera::train {

// Where a parameter lies in a bucket.
struct Place {
  size_t parameter = 0;
  int64_t begin = 0;  // of its elements in the bucket
  int64_t length = 0;
};

// Parameters that lie one behind the other in a flat buffer with an equal part for each rank.
// Between them may be gaps.
struct BucketPlan {
  std::vector<Place> places;
  int64_t length = 0;  // of all parts together
};

struct BucketOptions {
  int64_t ranks = 1;
  // Matrices inside the layers are not cut between ranks: for an optimizer that updates them whole.
  bool whole_matrices = false;
  int64_t elements = 0;  // of a bucket, about; 0: by the size of the model
};

// All parameters in the order in which a backward pass completes their gradients, the last first.
std::vector<BucketPlan> plan_buckets(const std::vector<nn::NamedParameter>& parameters,
                                     const BucketOptions& options);

// Whether such an optimizer (Muon) updates the parameter as a matrix.
bool is_hidden_matrix(const nn::NamedParameter& parameter);

}  // namespace tempera::train
