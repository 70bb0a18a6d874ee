#include "tempera/train/weight_copies.h"

#include <algorithm>

#include "tempera/nn/layers.h"
#include "tempera/ops/torch.h"

namespace tempera::train {

WeightCopies::WeightCopies(const nn::Model& model) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* linear = module->as<nn::Linear>();
    if (linear && linear->weight().scalar_type() != model.compute_type())
      copies_.push_back({linear->weight(), linear->weight().detach().to(model.compute_type()),
                         linear->weight()._version()});
  }
}

torch::Tensor WeightCopies::of(const torch::Tensor& parameter) const {
  const auto found = std::ranges::find_if(
      copies_, [&](const Copy& copy) { return copy.parameter.is_same(parameter); });
  return found == copies_.end() ? torch::Tensor() : found->copy;
}

bool WeightCopies::stale() const {
  return std::ranges::any_of(
      copies_, [](const Copy& copy) { return copy.parameter._version() != copy.version; });
}

void WeightCopies::refresh() {
  const torch::NoGradGuard no_grad;
  for (Copy& copy : copies_) {
    copy.copy.copy_(copy.parameter);
    copy.version = copy.parameter._version();
  }
}

WeightCopies::InUse::InUse(const WeightCopies& copies) {
  for (const Copy& copy : copies.copies_) {
    parameters_.push_back(copy.parameter);
    weights_.push_back(copy.parameter.detach());
    parameters_.back().set_data(copy.copy);
  }
}

WeightCopies::InUse::~InUse() {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(weights_[i]);
}

}  // namespace tempera::train
