#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Ssmax final : public Method {
 public:
  Ssmax(const LayerShape& shape, const MethodOptions& options)
      : Method(shape), fixed_(real_option(options, "s")) {
    if (flag_option(options, "learned")) {
      slope_ = add_parameter("slope", torch::full({shape.q_heads}, real_option(options, "s0")),
                             kTimesLogN);
    }
    if (flag_option(options, "bias")) {
      bias_ = add_parameter("bias", torch::full({shape.q_heads}, real_option(options, "b0")),
                            kActsOnAHead);
    }
  }

  RowScales forward(const LayerInputs& inputs) override {
    const auto type = scale_type(inputs.q.scalar_type());
    RowScales scales;
    scales.q.recipe.g =
        slope_.defined() ? slope_.to(type)
                         : torch::full({shape().q_heads}, fixed_, inputs.q.options().dtype(type));
    if (bias_.defined()) scales.q.recipe.c = bias_.to(type);
    return scales;
  }

 private:
  double fixed_;
  torch::Tensor slope_;
  torch::Tensor bias_;
};

}  // namespace

MethodEntry method_ssmax() {
  return {
      .name = "ssmax",
      .formula = "a_q = s log n (+ b), s and b per head",
      .help = "Scalable-Softmax: sharper as more keys are in sight",
      .options =
          {{.name = "learned",
            .value = true,
            .help = "learn s for every head; otherwise it is fixed"},
           {.name = "s0",
            .value = 1.0,
            .help = "start of the learned s",
            .domain = config::range(-100, 100)},
           {.name = "s", .value = 0.43, .help = "the fixed s", .domain = config::range(-100, 100)},
           {.name = "bias", .value = false, .help = "learn an offset b for every head"},
           {.name = "b0", .value = 0.0, .help = "start of b", .domain = config::range(-100, 100)}},
      .loaded = {{"s0", 0.0}, {"bias", true}, {"b0", 1.0}},
      .plain = MethodOptions{{"s0", 0.0}, {"bias", true}, {"b0", 1.0}},
      .variants = {{}, {{"bias", true}}, {{"learned", false}}},
      .make = make_as<Ssmax>};
}

}  // namespace tempera
