#include "tempera/ops/pairs.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/ops/scale.h"

namespace tempera::ops {
namespace {

// q.k of the pairs, (B, H, pairs).
at::Tensor products(const AttentionArgs& args, const at::Tensor& rows, const at::Tensor& keys) {
  const auto pick = [](const at::Tensor& from, const at::Tensor& index) {
    const at::Tensor where =
        index.view({index.size(0), 1, -1, 1}).expand({-1, from.size(1), -1, from.size(3)});
    return from.gather(2, where);
  };
  const at::Tensor k = pick(args.k, keys).repeat_interleave(args.q.size(1) / args.k.size(1), 1);
  return (pick(args.q, rows) * k).sum(-1);
}

}  // namespace

at::Tensor at_pairs(const at::Tensor& rows, const at::Tensor& index) {
  return rows.gather(2, index.unsqueeze(1).expand({-1, rows.size(1), -1}));
}

at::Tensor pair_weights(const AttentionArgs& args, const at::Tensor& lse, const PairScales& scales,
                        const at::Tensor& rows, const at::Tensor& keys) {
  TEMPERA_CHECK(lse.defined(),
                "attention weights are read from the operator's normaliser, which it does not give "
                "on this device; move the model to the CPU");
  const double scale = args.scale.value_or(1 / std::sqrt(static_cast<double>(args.q.size(3))));
  at::Tensor logit = products(args, rows, keys).to(scale_type(args.q.scalar_type())) * scale;
  if (scales.q.defined()) logit = logit * at_pairs(scales.q, rows);
  if (scales.k.defined())
    logit =
        logit * at_pairs(scales.k, keys).repeat_interleave(args.q.size(1) / scales.k.size(1), 1);
  if (args.bias.defined()) {
    const at::Tensor flat = args.bias.expand({args.q.size(0), args.q.size(1), -1, -1}).flatten(2);
    logit = logit + at_pairs(flat, rows * args.k.size(2) + keys);
  }
  if (args.cap > 0) logit = args.cap * (logit / args.cap).tanh();
  return (logit - at_pairs(lse, rows)).exp();
}

}  // namespace tempera::ops
