// A temperature method of our own, one learned number a head with softplus in place of exp, added
// to the registry and trained in a small model that copies its input.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/register.h"

namespace {

class Softplus final : public tempera::ConstantMethod {
 public:
  Softplus(const tempera::LayerShape& shape, const tempera::MethodOptions& options)
      : ConstantMethod(shape) {
    const double start = tempera::real_option(options, "start");
    raw_ = add_parameter("raw", torch::full({shape.q_heads}, start), kActsOnAHead);
  }

 protected:
  tempera::HeadScales head_scales(const torch::TensorOptions& options) const override {
    return {.q = (1 + raw_.to(options.dtype()).exp()).log(), .k = {}, .v = {}};
  }

 private:
  torch::Tensor raw_;
};

tempera::MethodEntry softplus() {
  return {.name = "softplus",
          .formula = "a_q = log(1 + exp(theta)), theta per query head",
          .help = "one learned temperature a query head, never negative",
          .folds = "W_q",
          .options = {{.name = "start",
                       .value = 0.5413,
                       .help = "theta at the start",
                       .domain = tempera::config::range(-10, 10)}},
          .make = tempera::make_as<Softplus>};
}

// The token two places back: what attention has to find.
tempera::nn::Batch batch(int64_t step) {
  torch::manual_seed(static_cast<uint64_t>(step));
  const auto tokens = torch::randint(0, 16, {16, 12});
  auto targets = torch::full_like(tokens, -100);
  targets.narrow(1, 2, 10).copy_(tokens.narrow(1, 0, 10));
  tempera::nn::Batch result;
  result.tokens = tokens;
  result.targets = targets;
  return result;
}

void run() {
  tempera::register_method(softplus());
  tempera::nn::ModelConfig config;
  config.vocabulary = 16;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.context = 12;
  config.temperature.method = "softplus";
  const auto model = tempera::nn::make_model(config, /*seed=*/1);
  const auto parameters = model->parameters();
  const auto start = model->methods()[0]->parameters()[0].detach().clone();
  double first = 0, last = 0;
  for (int64_t step = 0; step < 300; ++step) {
    model->zero_grad();
    const auto loss = model->loss(batch(step));
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : parameters) {
      const auto& gradient = parameter.grad();
      if (gradient.defined()) parameter.sub_(gradient.sign() * 3e-3);
    }
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  const auto moved = (model->methods()[0]->parameters()[0] - start).abs().max().item<double>();
  std::printf("loss %.3f -> %.3f, the temperature moved by %.3f\n", first, last, moved);
  if (!(last < 0.7 * first) || moved < 1e-3) throw std::runtime_error("nothing was learned");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
