#include <cmath>

#include "tempera/ops/torch.h"
#include "tempera/temperature/trained_length.h"

namespace tempera {
namespace {

class LogN final : public Method {
 public:
  LogN(const LayerShape& shape, const MethodOptions& options)
      : Method(shape), length_(trained_length("log-n", shape, options, 2)) {}

  RowScales forward(const LayerInputs& inputs) override {
    const auto type = scale_type(inputs.q.scalar_type());
    const auto& n = inputs.queries.n;
    const auto grown = log_count(n, type) / std::log(static_cast<double>(length_));
    // Chosen by n, not by max(1, .): log L / log L may round above 1.
    RowScales scales;
    scales.q.rows = torch::where(n > length_, grown, torch::ones_like(grown)).unsqueeze(1);
    return scales;
  }

 private:
  int64_t length_;
};

}  // namespace

MethodEntry method_log_n() {
  return {.name = "log-n",
          .formula = "a_q = max(1, log n / log L)",
          .help = "sharper past the trained length L, untouched up to it",
          .options = {trained_length_option()},
          .plain = MethodOptions{{"length", int64_t{1'000'000}}},
          .variants = {{{"length", int64_t{3}}}},
          .make = make_as<LogN>};
}

}  // namespace tempera
