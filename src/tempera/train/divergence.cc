#include "tempera/train/divergence.h"

#include <optional>

#include "tempera/base/error.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

bool finite(const torch::Tensor& tensor) { return torch::isfinite(tensor).all().item<bool>(); }

const char* kind(const torch::Tensor& tensor) {
  return torch::isnan(tensor).any().item<bool>() ? "NaN" : "infinite";
}

std::string layer_name(int64_t layer) {
  return layer < 0 ? "the embedding" : concat("layer ", layer);
}

std::optional<std::string> in_parameters(const nn::Model& model) {
  for (const auto& parameter : model.parameter_list())
    if (!finite(parameter.tensor.detach()))
      return concat("the parameter ", parameter.name, " is ", kind(parameter.tensor.detach()));
  return std::nullopt;
}

// What the two passes found, in the order of the passes.
struct Findings {
  std::optional<std::string> forward;
  std::optional<std::string> backward;
};

void pass(nn::Model& model, const nn::Batch& batch, double label_smoothing, Findings& found) {
  const auto observer = [&](int64_t layer, const torch::Tensor& output) {
    if (!found.forward && !finite(output.detach()))
      found.forward = concat("the activations of ", layer_name(layer), " are ",
                             kind(output.detach()), ", those before it are finite");
    if (!output.requires_grad()) return;
    output.register_hook([&found, layer](const torch::Tensor& gradient) {
      // The gradient that arrives here left the layer above.
      if (!found.backward && !finite(gradient))
        found.backward = concat("the gradients that leave layer ", layer + 1, " are ",
                                kind(gradient), ", those that reach it are finite");
    });
  };
  const auto hidden = model.hidden(batch, observer).flatten(0, 1);
  if (!found.forward && !finite(hidden.detach()))
    found.forward = concat("the last norm gives ", kind(hidden.detach()), " activations");
  // A head of sequences pools the rows by itself, in a pass of its own.
  const bool sequences = batch.targets.dim() == 1;
  const auto loss = sequences
                        ? model.loss(batch, label_smoothing)
                        : ops::linear_cross_entropy(model.head_rows(hidden),
                                                    model.output_weight().to(hidden.scalar_type()),
                                                    batch.targets.flatten(), label_smoothing);
  if (!found.forward && !finite(loss.detach()))
    found.forward = concat("the loss is ", kind(loss.detach()), ", all activations are finite");
  if (!found.forward) loss.backward();
}

}  // namespace

std::string find_divergence(nn::Model& model, const std::vector<nn::Batch>& batches,
                            double label_smoothing) {
  if (const auto parameter = in_parameters(model)) return *parameter;
  model.zero_grad();
  Findings found;
  for (const auto& batch : batches) {
    pass(model, batch, label_smoothing, found);
    if (found.forward) return *found.forward;
    if (found.backward) return *found.backward;
  }
  for (const auto& parameter : model.parameter_list()) {
    const auto gradient = parameter.tensor.grad();
    if (gradient.defined() && !finite(gradient))
      return concat("the gradient of ", parameter.name, " is ", kind(gradient));
  }
  return "";
}

}  // namespace tempera::train
