#include "tempera/ops/torch.h"
#include "tempera/temperature/trained_length.h"

namespace tempera {
namespace {

// YaRN multiplies queries and keys by 0.1 ln s + 1 each, s being how much longer the context is
// than the trained one; here s grows with the row's own n, and the queries have both factors.
class Yarn final : public Method {
 public:
  Yarn(const LayerShape& shape, const MethodOptions& options)
      : Method(shape), length_(trained_length("yarn", shape, options, 1)) {}

  RowScales forward(const LayerInputs& inputs) override {
    const auto type = scale_type(inputs.q.scalar_type());
    const auto& n = inputs.queries.n;
    // Clamped as counts, so that rows up to the trained length have exactly 1.
    const auto stretch = n.clamp_min(length_).to(type) / static_cast<double>(length_);
    RowScales scales;
    scales.q.rows = (0.1 * stretch.log() + 1).square().unsqueeze(1);
    return scales;
  }

 private:
  int64_t length_;
};

}  // namespace

MethodEntry method_yarn() {
  return {.name = "yarn",
          .formula = "a_q = (0.1 ln s + 1)^2, s = max(1, n / L)",
          .help = "YaRN's temperature, by how far a row is past the trained length L",
          .options = {trained_length_option()},
          .plain = MethodOptions{{"length", int64_t{1'000'000}}},
          .variants = {{{"length", int64_t{3}}}},
          .make = make_as<Yarn>};
}

}  // namespace tempera
