#include "tempera/nn/pooling.h"

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {

torch::Tensor pool(const torch::Tensor& hidden, const Batch& batch, Pooling pooling) {
  TEMPERA_CHECK(!batch.documents.defined(),
                "a row with several documents has no one vector: give a row to each");
  const auto rows = hidden.to(torch::kFloat32);
  const auto options = torch::dtype(torch::kInt64).device(hidden.device());
  const auto bound = [&](const torch::Tensor& given, int64_t absent) {
    return given.defined() ? given.to(options) : torch::full({hidden.size(0)}, absent, options);
  };
  const auto start = bound(batch.key_start, 0);
  if (pooling == Pooling::kFirst) {
    const auto first = start.clamp_max(hidden.size(1) - 1).view({-1, 1, 1});
    return rows.gather(1, first.expand({-1, 1, hidden.size(2)})).squeeze(1);
  }
  const auto end = bound(batch.key_end, hidden.size(1));
  const auto row = torch::arange(hidden.size(1), options);
  const auto real = ((row >= start.unsqueeze(1)) & (row < end.unsqueeze(1))).unsqueeze(-1);
  // where(), not a product: what padding holds must not matter.
  const auto sum = torch::where(real, rows, torch::zeros({}, rows.options())).sum(1);
  return sum / real.sum(1).clamp_min(1);
}

}  // namespace tempera::nn
