#include "tempera/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

torch::Tensor scaled(const torch::Tensor& gradient, double scale, const torch::Tensor& like) {
  const torch::Tensor converted = gradient.to(like.scalar_type());
  return scale == 1 ? converted : converted * scale;
}

// The loop over the parameters and what all kinds share: which rate and which decay a parameter
// has, and its state.
class Base : public Optimizer {
 public:
  Base(const OptimizerOptions& options, std::vector<nn::NamedParameter> parameters)
      : options_(options), parameters_(std::move(parameters)), steps_(at::zeros({}, at::kLong)) {}

  int64_t count_step() final {
    const at::NoGradGuard no_grad;
    steps_ += 1;
    return steps_.item<int64_t>();
  }

  void step(const Update& update) final {
    const at::NoGradGuard no_grad;
    const int64_t number = count_step();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const nn::NamedParameter& parameter = parameters_[i];
      if (!parameter.tensor.grad().defined()) continue;
      apply(i, {.rate = update.rate * rate_factor(parameter),
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .epsilon = options_.epsilon,
                .decay = decay(parameter),
                .step = number,
                .gradient_factor = update.gradient_scale});
    }
  }

  nn::StateMap state() const final {
    nn::StateMap state = slots_;
    state["steps"] = steps_;
    return state;
  }

 protected:
  virtual void apply(size_t index, const ops::AdamWStep& step) = 0;

  double rate_factor(const nn::NamedParameter& parameter) const {
    const bool temperature = parameter.kind == nn::ParameterKind::kTemperature ||
                             parameter.kind == nn::ParameterKind::kFrequency;
    return parameter.rate * (temperature ? options_.temperature_rate : 1);
  }
  double decay(const nn::NamedParameter& parameter) const {
    return nn::is_decayed(parameter.kind) ? options_.decay : 0;
  }
  torch::Tensor slot(size_t index, const char* kind) {
    return slots_.at(parameters_[index].name + kind);
  }
  void add_slot(const nn::NamedParameter& parameter, const char* kind) {
    slots_[parameter.name + kind] = at::zeros_like(parameter.tensor.detach());
  }
  const nn::NamedParameter& parameter(size_t index) const { return parameters_[index]; }
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  OptimizerOptions options_;
  std::vector<nn::NamedParameter> parameters_;
  torch::Tensor steps_;
  nn::StateMap slots_;
};

class AdamW : public Base {
 public:
  AdamW(const OptimizerOptions& options, std::vector<nn::NamedParameter> all)
      : Base(options, std::move(all)) {
    for (const auto& parameter : parameters()) {
      add_slot(parameter, ".first");
      add_slot(parameter, ".second");
    }
  }

  std::vector<ops::AdamWTensor> tensors() override {
    std::vector<ops::AdamWTensor> list;
    for (size_t i = 0; i < parameters().size(); ++i)
      list.push_back({parameter(i).tensor, slot(i, ".first"), slot(i, ".second"),
                      decay(parameter(i)), rate_factor(parameter(i))});
    return list;
  }

 protected:
  void apply(size_t index, const ops::AdamWStep& step) override {
    const nn::NamedParameter& p = parameter(index);
    ops::adamw(p.tensor, p.tensor.grad(), slot(index, ".first"), slot(index, ".second"), step);
  }
};

// Heavy-ball momentum: m = momentum * m + g, p -= rate * (m + decay * p).
class Sgd final : public Base {
 public:
  Sgd(const OptimizerOptions& options, std::vector<nn::NamedParameter> all)
      : Base(options, std::move(all)) {
    for (const auto& parameter : parameters()) add_slot(parameter, ".momentum");
  }

 private:
  void apply(size_t index, const ops::AdamWStep& step) override {
    torch::Tensor value = parameter(index).tensor;
    torch::Tensor momentum = slot(index, ".momentum");
    momentum.mul_(options().momentum).add_(scaled(value.grad(), step.gradient_factor, value));
    value.mul_(1 - step.rate * step.decay).add_(momentum, -step.rate);
  }
};

// Hidden matrices move along the orthogonalised momentum (K. Jordan et al., 2024), all else by
// AdamW. The factor gives the update the size of AdamW's, so that one learning rate serves both (J.
// Liu et al., "Muon is scalable for LLM training", 2025).
class Muon final : public Base {
 public:
  Muon(const OptimizerOptions& options, std::vector<nn::NamedParameter> all)
      : Base(options, std::move(all)) {
    for (const auto& parameter : parameters()) {
      if (hidden(parameter)) {
        add_slot(parameter, ".momentum");
      } else {
        add_slot(parameter, ".first");
        add_slot(parameter, ".second");
      }
    }
  }

 private:
  static constexpr double kMomentum = 0.95;
  static bool hidden(const nn::NamedParameter& parameter) {
    return parameter.kind == nn::ParameterKind::kMatrix && parameter.tensor.dim() == 2;
  }

  void apply(size_t index, const ops::AdamWStep& step) override {
    torch::Tensor value = parameter(index).tensor;
    if (!hidden(parameter(index))) {
      ops::adamw(value, value.grad(), slot(index, ".first"), slot(index, ".second"), step);
      return;
    }
    const torch::Tensor gradient = scaled(value.grad(), step.gradient_factor, value);
    torch::Tensor momentum = slot(index, ".momentum");
    momentum.lerp_(gradient, 1 - kMomentum);
    const torch::Tensor nesterov = at::lerp(gradient, momentum, kMomentum);
    const auto longest = static_cast<double>(std::max(value.size(0), value.size(1)));
    value.mul_(1 - step.rate * step.decay)
        .add_(orthogonalized(nesterov), -step.rate * 0.2 * std::sqrt(longest));
  }
};

}  // namespace

void OptimizerOptions::declare(config::Options& options) {
  static const config::EnumChoices<OptimizerKind> kNames{{{"adamw", OptimizerKind::kAdamW},
                                                          {"sgd", OptimizerKind::kSgd},
                                                          {"muon", OptimizerKind::kMuon}}};
  options.section(config::Section::kTraining);
  options.option("optimizer", kind, kNames,
                 "optimizer; muon: for the matrices inside the layers, with AdamW for the rest");
  options.option("learning-rate", learning_rate, config::above_to(0, 100), "peak learning rate");
  options.option("temperature-rate", temperature_rate, config::range(0, 1e6),
                 "multiplies the learning rate of the temperature parameters");
  const config::Attributes rare{.rare = true};
  options.option("beta1", beta1, config::range(0, 0.999999), "AdamW: beta1", rare);
  options.option("beta2", beta2, config::range(0, 0.999999999), "AdamW: beta2", rare);
  options.option("epsilon", epsilon, config::above_to(0, 1), "AdamW: epsilon", rare);
  options.option("weight-decay", decay, config::range(0, 100),
                 "decoupled weight decay of matrices and embeddings");
  options.option("momentum", momentum, config::range(0, 0.999999), "SGD: momentum", rare);
  options.option("clip", clip, config::range(0, 1e9), "gradient norm to clip at; 0: no clipping");
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<nn::NamedParameter> parameters) {
  switch (options.kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd>(options, std::move(parameters));
    case OptimizerKind::kMuon:
      return std::make_unique<Muon>(options, std::move(parameters));
    case OptimizerKind::kAdamW:
      break;
  }
  return std::make_unique<AdamW>(options, std::move(parameters));
}

std::vector<double> gradient_norms(const std::vector<nn::NamedParameter>& parameters) {
  RECORD_FUNCTION("tempera::gradient_norm", {});
  const at::NoGradGuard no_grad;
  std::vector<double> norms(parameters.size());
  std::vector<size_t> waiting;
  std::vector<torch::Tensor> on_device;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor gradient = parameters[i].tensor.grad();
    if (!gradient.defined()) continue;
    const torch::Tensor norm = at::linalg_vector_norm(gradient, 2);
    if (norm.is_cuda()) {
      // All come back at once: every wait for the GPU costs more than the sums.
      waiting.push_back(i);
      on_device.push_back(norm.to(at::kDouble));
      continue;
    }
    norms[i] = norm.item<double>();
    // The squares of large gradients do not fit into float32.
    if (!std::isfinite(norms[i]))
      norms[i] = at::linalg_vector_norm(gradient, 2, {}, false, at::kDouble).item<double>();
  }
  if (on_device.empty()) return norms;
  const torch::Tensor host = at::stack(on_device).cpu();
  for (size_t i = 0; i < waiting.size(); ++i) norms[waiting[i]] = host.const_data_ptr<double>()[i];
  return norms;
}

double gradient_norm(const std::vector<nn::NamedParameter>& parameters) {
  double sum = 0;
  for (const double norm : gradient_norms(parameters)) sum += norm * norm;
  return std::sqrt(sum);
}

torch::Tensor orthogonalized(const torch::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  torch::Tensor x = tall ? matrix.t() : matrix;
  x = x / (at::linalg_vector_norm(x, 2) + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const torch::Tensor gram = x.matmul(x.t());
    const torch::Tensor polynomial = -4.7750 * gram + 2.0315 * gram.matmul(gram);
    x = 3.4445 * x + polynomial.matmul(x);
  }
  return tall ? x.t() : x;
}

}  // namespace tempera::train
