#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/ops/adamw_list.h"
#include "tempera/ops/graph.h"
#include "tempera/train/optimizer.h"
#include "tempera/train/weight_copies.h"

namespace tempera::train {

// A training step on a GPU as one graph: forward, backward, the norm of the gradients, clipping and
// AdamW. The host starts it with one call and waits for nothing until finish(); the next batch is
// copied meanwhile.
class GraphStep {
 public:
  // Whether steps of this model can be graphs: the GPU has our kernels, the optimizer is AdamW, and
  // nothing in the step is drawn anew on the host (dropout).
  static bool possible(const nn::Model& model, const torch::Device& device,
                       const OptimizerOptions& options);

  // All must outlive this.
  GraphStep(nn::Model& model, Optimizer& optimizer, const OptimizerOptions& options,
            double label_smoothing);

  // Whether a batch can be a graph's: rows without documents and padding. Their masks are made on
  // the host, and a graph would go on with the mask that it was recorded with.
  static bool takes(const nn::Batch& batch);
  // Copies a batch of the host to the GPU; the next start() takes it.
  void load(const nn::Batch& batch);
  // The first step, and the first of another shape, are recorded.
  void start(double rate);

  struct Result {
    double loss = 0;
    double norm = 0;  // of the gradients, before clipping
    int64_t tokens = 0;
  };
  // Where one of them is not finite, nothing was updated. The parameters then have the gradients of
  // this step, also where steps without a graph came between.
  Result finish();

 private:
  void record();
  torch::Tensor forward_and_backward();
  bool has_shape_of(const nn::Batch& batch) const;

  nn::Model& model_;
  Optimizer& optimizer_;
  OptimizerOptions options_;
  double label_smoothing_;
  ops::Prefetch prefetch_;
  nn::Batch offered_;                     // what load() was given last
  nn::Batch batch_;                       // what the graph reads
  torch::Tensor numbers_;                 // (3) loss, norm, factor of clipping
  int64_t step_ = 0;                      // the last one
  std::unique_ptr<WeightCopies> copies_;  // which the update keeps
  std::unique_ptr<ops::AdamWList> update_;
  std::unique_ptr<ops::CudaGraph> graph_;
  // Of the parameters that have one: where the graph writes it.
  struct Gradient {
    torch::Tensor parameter, gradient;
  };
  std::vector<Gradient> gradients_;
};

// Hands batches to a graph, one step ahead where there is time for it. What the graph does not take
// never reaches it, fetched ahead or not.
class GraphFeed {
 public:
  using Make = std::function<nn::Batch(int64_t step)>;  // on the host
  using Load = std::function<void(const nn::Batch& batch)>;

  GraphFeed(Make make, Load load);

  void fetch_ahead(int64_t step);
  // Whether the graph has the batch of this step now; if not, it does not take it.
  bool take(int64_t step);

 private:
  struct Offer {
    int64_t step;
    bool loaded;
  };

  Make make_;
  Load load_;
  std::optional<Offer> last_;
};

}  // namespace tempera::train
