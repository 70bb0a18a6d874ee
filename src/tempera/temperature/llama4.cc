#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

class Llama4 final : public Method {
 public:
  Llama4(const LayerShape& shape, const MethodOptions& options)
      : Method(shape),
        floor_(int_option(options, "floor")),
        beta_(real_option(options, "beta")),
        offset_(int_option(options, "offset")) {}

  RowScales forward(const LayerInputs& inputs) override {
    const auto type = scale_type(inputs.q.scalar_type());
    const auto position = inputs.queries.position.clamp_min(0) + offset_;
    const auto steps = torch::floor_divide(position, floor_).to(type);
    RowScales scales;
    scales.q.rows = (1 + beta_ * torch::log1p(steps)).unsqueeze(1);
    return scales;
  }

 private:
  int64_t floor_;
  double beta_;
  int64_t offset_;
};

}  // namespace

MethodEntry method_llama4() {
  return {.name = "llama4",
          .formula = "a_q = 1 + beta log(1 + floor((p + offset) / floor))",
          .help = "sharper in steps of the position; Llama-4 (offset 1), Ministral-3 (offset 0)",
          .options =
              {{.name = "floor",
                .value = int64_t{8192},
                .help = "positions in a step",
                .domain = config::range(1, 1e12)},
               {.name = "beta", .value = 0.1, .help = "growth", .domain = config::range(-100, 100)},
               {.name = "offset",
                .value = int64_t{1},
                .help = "added to the position, which counts from 0",
                .domain = config::range(0, 1)}},
          .plain = MethodOptions{{"beta", 0.0}},
          .variants = {{{"floor", int64_t{2}}}, {{"floor", int64_t{2}}, {"offset", int64_t{0}}}},
          .make = make_as<Llama4>};
}

}  // namespace tempera
