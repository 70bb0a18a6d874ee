#include "tempera/nn/inspection.h"

#include <limits>

#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// (heads) over the rows that are no padding; undefined for a scale of 1.
torch::Tensor mean_scale(const RowScale& scale, const RowInfo& rows) {
  if (!scale.present()) return {};
  const auto numbers = finish(scale, rows.n, scale_type(rows.x.scalar_type()));
  const auto real = (rows.position >= 0).unsqueeze(1).to(numbers.scalar_type());
  return (numbers * real).sum(at::IntArrayRef({0, 2})) / real.sum().clamp_min(1);
}

}  // namespace

LayerInspection inspect_scales(const RowScales& scales, const RowInfo& queries,
                               const RowInfo& keys) {
  const torch::NoGradGuard no_grad;
  return {.weight = {},
          .entropy = {},
          .a_q = mean_scale(scales.q, queries),
          .a_k = mean_scale(scales.k, keys),
          .a_v = mean_scale(scales.v, keys),
          .mean_entropy = {},
          .largest = {}};
}

void add_rows(LayerInspection& layer, const torch::Tensor& entropy, const torch::Tensor& largest,
              const RowInfo& queries) {
  const torch::NoGradGuard no_grad;
  const auto real = (queries.position >= 0).unsqueeze(1);
  layer.mean_entropy = (entropy * real).sum(at::IntArrayRef({0, 2})) / real.sum().clamp_min(1);
  layer.largest = largest.masked_fill(~real, -std::numeric_limits<double>::infinity())
                      .amax(at::IntArrayRef({0, 2}));
}

}  // namespace tempera::nn
