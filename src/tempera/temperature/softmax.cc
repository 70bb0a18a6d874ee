#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Softmax final : public ConstantMethod {
 public:
  Softmax(const LayerShape& shape, const MethodOptions& /*options*/) : ConstantMethod(shape) {}

 protected:
  HeadScales head_scales(const torch::TensorOptions& /*options*/) const override { return {}; }
};

}  // namespace

MethodEntry method_softmax() {
  return {.name = "softmax",
          .formula = "a = 1",
          .help = "plain attention, the baseline",
          .folds = "nothing to fold",
          .plain = MethodOptions{},
          .make = make_as<Softmax>};
}

}  // namespace tempera
