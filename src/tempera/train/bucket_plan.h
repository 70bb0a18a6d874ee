#pragma once

#include <cstdint>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/train/options.h"

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
  int64_t block = -1;  // of the model, whose parameters they are; -1: of none
};

struct BucketOptions {
  int64_t ranks = 1;
  // Matrices inside the layers are not cut between ranks: for an optimizer that updates them whole.
  bool whole_matrices = false;
  int64_t elements = 0;  // of a bucket, about; 0: by the size of the model
  // The blocks of the parameters, -1: of none. What is of one block has a bucket, or where some
  // matrices are not cut two, of its own; so has what is of none. Empty: buckets of about a size.
  std::vector<int64_t> blocks = {};
};

// All parameters in the order in which a backward pass completes their gradients, the last first.
std::vector<BucketPlan> plan_buckets(const std::vector<nn::NamedParameter>& parameters,
                                     const BucketOptions& options);

// The modules of the model's blocks in the order in which they run, and of each parameter the
// number of its block.
struct ModelBlocks {
  std::vector<const torch::nn::Module*> modules;
  std::vector<int64_t> of_parameters;  // -1: in none
};
ModelBlocks blocks_of(const nn::Model& model, const std::vector<nn::NamedParameter>& parameters);

// How the parameters of a model are cut for a sharding.
BucketOptions bucket_options(const nn::Model& model,
                             const std::vector<nn::NamedParameter>& parameters, Sharding sharding,
                             int64_t ranks, OptimizerKind optimizer);

// Whether such an optimizer (Muon) updates the parameter as a matrix.
bool is_hidden_matrix(const nn::NamedParameter& parameter);

}  // namespace tempera::train
