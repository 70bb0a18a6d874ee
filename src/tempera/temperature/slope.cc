#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Slope final : public Method {
 public:
  Slope(const LayerShape& shape, const MethodOptions& options) : Method(shape) {
    slope_ = add_parameter("slope", torch::full({shape.q_heads}, real_option(options, "s0")),
                           kTimesLogN);
  }

  RowScales forward(const LayerInputs& inputs) override {
    const auto type = scale_type(inputs.q.scalar_type());
    RowScales scales;
    scales.q.recipe.g = slope_.to(type);
    scales.q.recipe.c = torch::ones({shape().q_heads}, slope_.options().dtype(type));
    return scales;
  }

 private:
  torch::Tensor slope_;
};

}  // namespace

MethodEntry method_slope() {
  return {.name = "slope",
          .formula = "a_q = 1 + s log n, s per query head",
          .help = "a learned log-n slope a query head on top of what is there",
          .options = {{.name = "s0",
                       .value = 0.0,
                       .help = "start of s",
                       .domain = config::range(-100, 100)}},
          .plain = MethodOptions{{"s0", 0.0}},
          .variants = {{{"s0", 0.1}}},
          .make = make_as<Slope>};
}

}  // namespace tempera
