#pragma once

#include <cstdint>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/nn/model.h"
#include "tempera/train/bucket_plan.h"
#include "tempera/train/options.h"

// What a training needs, from its settings alone: nothing is started, and no memory is used.
namespace tempera::train {

// The machines that a training is planned for.
struct Cluster {
  int64_t ranks = 1;
  double memory = 80;  // GB of a GPU
  double flops = 400;  // TFLOP/s that a GPU sustains
  double link = 50;    // GB/s between ranks

  // Without the ranks, which are an option of every training.
  void declare(config::Options& options);
};

// Bytes that one rank holds at the fullest moment of a step.
struct RankMemory {
  double weights = 0;
  double copies = 0;  // of the matrices, in the type that the model computes in
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // what the blocks keep for the way back, and the way back of one
  double outputs = 0;      // logits, and the gradients of the output matrix and its rows
  double buckets = 0;      // values and gradients that are whole while they are under way

  double total() const {
    return weights + copies + gradients + optimizer + activations + outputs + buckets;
  }
};

enum class Bound { kCompute, kLink, kMemory };

struct Forecast {
  Sharding sharding = Sharding::kNone;
  bool recompute = false;
  RankMemory memory = {};
  double sent = 0;  // bytes that a rank sends in a step
  double compute_seconds = 0;
  double link_seconds = 0;  // of what is sent, hidden or not
  double seconds = 0;       // of a step
  Bound bound = Bound::kCompute;
};

// Every sharding that so many ranks have, without and with recomputation. The model's weights are
// not read.
std::vector<Forecast> forecasts(const nn::Model& model, const TrainOptions& options,
                                const Cluster& cluster);
// Of those that fit into the memory and are about as fast as the fastest, the one that sends the
// least, and of these the one that leaves the most memory; null: none fits.
const Forecast* recommended(const std::vector<Forecast>& all);

// The parts that these are made of, in bytes.

// What a rank keeps of parameters and gradients between two steps, and of the optimizer's state.
// The largest of all ranks.
struct KeptBytes {
  double weights = 0, gradients = 0, optimizer = 0;
};
KeptBytes kept_bytes(const std::vector<nn::NamedParameter>& parameters,
                     const std::vector<BucketPlan>& plans, Sharding sharding, int64_t ranks,
                     OptimizerKind optimizer);
// Of a pass over so many tokens.
double activation_bytes(const nn::ModelConfig& model, double tokens, config::Dtype dtype,
                        bool recompute);
double output_bytes(const nn::ModelConfig& model, double tokens, config::Dtype dtype,
                    config::Device device);
// Of the matrices inside the blocks and the tables, to tell a model that is too large before it is
// made.
double matrix_elements(const nn::ModelConfig& model);

}  // namespace tempera::train
