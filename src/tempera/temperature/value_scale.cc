#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class ValueScale final : public ConstantMethod {
 public:
  ValueScale(const LayerShape& shape, const MethodOptions& options)
      : ConstantMethod(shape), scale_(real_option(options, "scale")) {}

 protected:
  HeadScales head_scales(const torch::TensorOptions& options) const override {
    return {.q = {}, .k = {}, .v = torch::full({shape().kv_heads}, scale_, options)};
  }

 private:
  double scale_;
};

}  // namespace

MethodEntry method_value_scale() {
  return {.name = "value-scale",
          .formula = "a_v = scale",
          .help = "a fixed scale of the values, as in MiMo-V2",
          .folds = "W_v",
          .options = {{.name = "scale",
                       .value = 0.707,
                       .help = "factor of every value",
                       .domain = config::range(-1000, 1000)}},
          .plain = MethodOptions{{"scale", 1.0}},
          .make = make_as<ValueScale>};
}

}  // namespace tempera
