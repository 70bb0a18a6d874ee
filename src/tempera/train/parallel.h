#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tempera/dist/world.h"
#include "tempera/nn/model.h"
#include "tempera/train/bucket_plan.h"
#include "tempera/train/options.h"

namespace tempera::train {

struct ParallelOptions {
  Sharding sharding = Sharding::kOptimizer;
  bool whole_matrices = false;
  int64_t bucket_elements = 0;  // see BucketOptions
};

// A stretch of a parameter which one rank updates.
struct Share {
  nn::NamedParameter parameter;  // the name of the whole; the values are those of the stretch
  int64_t begin = 0;             // in the whole, flattened
  std::vector<int64_t> shape;    // of the whole
};

// The parameters of a model that several ranks train on parts of one batch. The gradients of all
// ranks are summed bucket by bucket while the backward pass still computes the next ones; every
// rank updates its shares, and all get the result.
class Parallel {
 public:
  // The parameters move into flat buffers, and get the first rank's values.
  Parallel(dist::World& world, std::vector<nn::NamedParameter> parameters,
           const ParallelOptions& options);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  // What this rank updates. finish_gradients() gives these tensors their gradients.
  const std::vector<Share>& shares() const { return shares_; }

  // Whether it updates all, as every rank.
  bool shares_are_whole() const { return options_.sharding == Sharding::kNone; }

  // Before the backward passes of a step, and before the last of them.
  void begin_gradients();
  void begin_pass(bool last);
  // After a pass.
  void end_pass();
  // The squared norm of all gradients together, of which this rank's shares have a part; the loss
  // of this rank. Gives the sums over all ranks, and sets the gradients of the shares.
  struct Sums {
    double loss = 0;
    double squared_norm = 0;
  };
  Sums finish_gradients(double loss);

  // After the update: the new values go to all ranks, under way until await_values().
  void start_values();
  // Before anything reads the parameters.
  void await_values();

  // Throws Error that names a rank whose values are not the first rank's, as after an error of its
  // memory or network.
  void check_values();

  // Seconds that this rank has waited for others.
  double waited() const { return waited_; }

 private:
  struct Bucket;
  class Hook;

  void add_bucket(const BucketPlan& plan);
  void add_shares(Bucket& bucket);
  void arrived(size_t parameter, const torch::Tensor& gradient);
  void start_ready();
  void start(Bucket& bucket);
  void finish(Bucket& bucket);
  void wait(dist::World::Work& work);

  dist::World& world_;
  std::vector<nn::NamedParameter> parameters_;
  ParallelOptions options_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<Share> shares_;
  std::vector<torch::Tensor> share_gradients_;
  std::vector<size_t> parameter_of_share_;
  struct Target {
    size_t bucket = 0;
    Place place;
  };
  std::vector<Target> targets_;  // of the parameters
  std::vector<double> touched_;  // parameters that have a gradient in this step
  bool listening_ = false;       // a pass is under way
  bool last_ = false;
  size_t next_ = 0;  // the bucket that is sent next
  std::vector<dist::World::Work> values_;
  double waited_ = 0;
};

}  // namespace tempera::train
