#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Focal final : public ConstantMethod {
 public:
  Focal(const LayerShape& shape, const MethodOptions& options)
      : ConstantMethod(shape), t_(real_option(options, "t")) {}

 protected:
  HeadScales head_scales(const torch::TensorOptions& options) const override {
    return {.q = torch::full({shape().q_heads}, 1 / t_, options), .k = {}, .v = {}};
  }

 private:
  double t_;
};

}  // namespace

MethodEntry method_focal() {
  return {.name = "focal",
          .formula = "a_q = 1 / t",
          .help = "Focal Attention with a fixed temperature",
          .folds = "W_q",
          .options = {{.name = "t",
                       .value = 0.4,
                       .help = "temperature; below 1 sharpens",
                       .domain = config::range(0.001, 1000)}},
          .plain = MethodOptions{{"t", 1.0}},
          .make = make_as<Focal>};
}

}  // namespace tempera
