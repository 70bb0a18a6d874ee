#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/nn/model.h"
#include "tempera/ops/adamw_list.h"

namespace tempera::train {

enum class OptimizerKind { kAdamW, kSgd, kMuon };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  double temperature_rate = 1;  // multiplies the learning rate of temperature parameters
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;
  double momentum = 0.9;  // SGD
  double clip = 1;        // largest norm of all gradients together; 0: no clipping

  void declare(config::Options& options);
};

// One update: the learning rate of this step, and a factor on all gradients (clipping,
// accumulation).
struct Update {
  double rate = 0;
  double gradient_scale = 1;
};

// Updates are the same bits for the same gradients and threads.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(const Update& update) = 0;

  // For an update in one launch (ops/adamw_list.h), which does not go through step(): the
  // parameters with their state, none where this kind has no such update, and the number of the
  // step that now begins.
  virtual std::vector<ops::AdamWTensor> tensors() { return {}; }
  virtual int64_t count_step() = 0;

  // Everything that the next update depends on beside the parameters. The tensors are the live
  // ones.
  virtual nn::StateMap state() const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<nn::NamedParameter> parameters);

// The norm of all gradients together, summed in the order of the parameters. Not finite where a
// gradient is not.
double gradient_norm(const std::vector<nn::NamedParameter>& parameters);
// The norm of each; 0 where there is none.
std::vector<double> gradient_norms(const std::vector<nn::NamedParameter>& parameters);

// The nearest matrix with singular values near 1, by five Newton-Schulz iterations.
torch::Tensor orthogonalized(const torch::Tensor& matrix);

}  // namespace tempera::train
