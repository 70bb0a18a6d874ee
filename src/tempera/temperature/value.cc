#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class ValueHead final : public ConstantMethod {
 public:
  ValueHead(const LayerShape& shape, const MethodOptions& /*options*/) : ConstantMethod(shape) {
    theta_ = add_parameter("theta", torch::zeros({shape.kv_heads}), kActsOnAHead);
  }

 protected:
  HeadScales head_scales(const torch::TensorOptions& options) const override {
    return {.q = {}, .k = {}, .v = theta_.to(options.dtype()).exp()};
  }

 private:
  torch::Tensor theta_;
};

}  // namespace

MethodEntry method_value() {
  return {.name = "value",
          .formula = "a_v = exp(theta), theta per key-value head",
          .help = "one learned scale of the values a key-value head",
          .folds = "W_v",
          .plain = MethodOptions{},
          .make = make_as<ValueHead>};
}

}  // namespace tempera
