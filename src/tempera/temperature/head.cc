#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Head final : public ConstantMethod {
 public:
  Head(const LayerShape& shape, const MethodOptions& options) : ConstantMethod(shape) {
    const bool shared = text_option(options, "by") == "layer";
    theta_ = add_parameter("theta", torch::zeros({shared ? 1 : shape.q_heads}), kActsOnAHead);
  }

 protected:
  HeadScales head_scales(const torch::TensorOptions& options) const override {
    return {.q = theta_.to(options.dtype()).exp().expand({shape().q_heads}), .k = {}, .v = {}};
  }

 private:
  torch::Tensor theta_;
};

}  // namespace

MethodEntry method_head() {
  return {
      .name = "head",
      .formula = "a_q = exp(theta), theta per query head",
      .help = "one learned temperature a query head",
      .folds = "W_q",
      .options = {{.name = "by",
                   .value = std::string("head"),
                   .help = "layer: one for all heads of a layer, which a QK-norm whose gain the "
                           "heads share can take up",
                   .domain = {.choices = {"head", "layer"}}}},
      .plain = MethodOptions{},
      .variants = {{}, {{"by", std::string("layer")}}},
      .make = make_as<Head>};
}

}  // namespace tempera
