#include <torch/torch.h>

#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Head final : public ConstantMethod {
 public:
  Head(const LayerShape& shape, const MethodOptions& /*options*/) : ConstantMethod(shape) {
    theta_ = register_parameter("theta", torch::zeros({shape.q_heads}));
  }

 protected:
  HeadScales head_scales(const torch::TensorOptions& options) const override {
    return {.q = theta_.to(options.dtype()).exp(), .k = {}, .v = {}};
  }

 private:
  torch::Tensor theta_;
};

}  // namespace

MethodEntry method_head() {
  return {.name = "head",
          .formula = "a_q = exp(theta), theta per query head",
          .help = "one learned temperature a query head",
          .folds = "W_q",
          .plain = MethodOptions{},
          .make = make_as<Head>};
}

}  // namespace tempera
