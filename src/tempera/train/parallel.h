#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tempera/dist/world.h"
#include "tempera/nn/model.h"
#include "tempera/train/bucket_plan.h"
#include "tempera/train/options.h"

namespace tempera::train {

struct ParallelOptions {
  Sharding sharding = Sharding::kOptimizer;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
};

// Of the bits of the values, wherever they are.
uint64_t checksum_of(const torch::Tensor& values);

// A stretch of a parameter which one rank updates.
struct Share {
  nn::NamedParameter parameter;  // the name of the whole; the values are those of the stretch
  int64_t begin = 0;             // in the whole, flattened
  std::vector<int64_t> shape;    // of the whole
};

// The parameters of a model that several ranks train on parts of one batch. The gradients of all
// ranks are summed bucket by bucket while the backward pass still computes the next ones; every
// rank updates its shares, and all get the result.
//
// Where the parameters are shared out, too, a pass has those of two blocks at a time: the block
// that computes and the next one, whose values are on their way.
class Parallel {
 public:
  // The parameters, which the model learns, move into flat buffers, and get the first rank's
  // values. The model must outlive this.
  Parallel(dist::World& world, nn::Model& model, std::vector<nn::NamedParameter> parameters,
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
  // Before passes read the parameters, and behind them.
  void await_values();
  void release_values();
  // Whether a pass is an exchange, so that all ranks need the same number of them.
  bool passes_together() const { return options_.sharding == Sharding::kAll; }

  // All parameters are whole while the work reads or changes them; all ranks do the same.
  void with_values(const std::function<void()>& work);
  // Of the first rank the model's state; where no rank has all of it, copies on the CPU. The others
  // give their part.
  nn::StateMap whole_state();

  // Throws Error that names a rank whose values are not the first rank's, as after an error of its
  // memory or network.
  void check_values();

  // Seconds that this rank has waited for others.
  double waited() const { return waited_; }
  // That it holds now of parameters and gradients.
  int64_t held_bytes() const;

 private:
  struct Bucket;
  class Hook;
  class Blocks;

  bool shares_values() const { return options_.sharding == Sharding::kAll; }
  bool shares_gradients() const { return options_.sharding >= Sharding::kGradients; }
  void add_bucket(const BucketPlan& plan);
  void add_shares(Bucket& bucket);
  void arrived(size_t parameter, const torch::Tensor& gradient);
  void start_ready();
  void start(Bucket& bucket);
  void finish(Bucket& bucket);
  void wait(dist::World::Work& work);
  // Values that are shared out: on their way to this rank, there, and gone again.
  void gather(Bucket& bucket);
  void await(Bucket& bucket);
  void release(Bucket& bucket);
  // One bucket after the other is whole for the work.
  void each_whole(const std::function<void(const Bucket& bucket)>& work);
  std::vector<Bucket*> of_block(int64_t block);
  void begin_block(int64_t block);
  void end_block(int64_t block, const torch::Tensor& output);
  void begin_backward(int64_t block);

  dist::World& world_;
  nn::Model& model_;
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
  std::unique_ptr<Blocks> blocks_;  // where the parameters are shared out
  bool reading_ = false;            // passes read the parameters
  double waited_ = 0;
};

}  // namespace tempera::train
