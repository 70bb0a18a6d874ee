#include <ATen/ATen.h>

#include "tempera/base/error.h"
#include "tempera/ops/checks.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/composed/masked.h"
#include "tempera/ops/host_mask.h"
#include "tempera/ops/problem.h"

namespace tempera::ops {
namespace {

void refuse(bool given, const char* feature) {
  TEMPERA_CHECK(
      !given, feature, " is not available on this device, where attention is composed of ",
      "torch's own operators; build with CUDA kernels, compute on the CPU, or do without");
}

// What attention and decode share.
template <class Args>
void check_composable(const Args& args) {
  refuse(args.cap > 0, "cap (soft-capped logits)");
  refuse(args.post.defined(), "post (a multiplier behind the cap)");
  refuse(args.sinks.defined(), "sinks (sink logits)");
  refuse(args.want_head_max, "the maximum of a head (want_head_max)");
}

// Broadcasts to (B, heads, rows, 1); undefined for 1. log_n: (B, rows).
at::Tensor composed_scale(const RowScale& scale, const at::Tensor& operand,
                          const at::Tensor& log_n) {
  const at::ScalarType type = scale_type(operand.scalar_type());
  at::Tensor factor;
  if (scale.has_recipe()) factor = recipe_rows(scale.recipe, operand, log_n, type);
  if (scale.rows.defined())
    factor = factor.defined() ? factor * scale.rows.to(type) : scale.rows.to(type);
  return factor.defined() ? factor.unsqueeze(-1) : factor;
}

at::Tensor scaled(const at::Tensor& operand, const at::Tensor& scale) {
  return scale.defined() ? (operand * scale).to(operand.scalar_type()) : operand;
}

// log n (B, rows) of the queries of a plain attention, made where q lies.
at::Tensor plain_log_n(const AttentionArgs& args, const kernels::Shape& shape) {
  const auto options = args.q.options().dtype(scale_type(args.q.scalar_type()));
  const at::Tensor n = args.causal ? at::arange(1, shape.q_rows + 1, options)
                                   : at::full({shape.q_rows}, shape.kv_rows, options);
  return n.log_().expand({shape.batch, shape.q_rows});
}

// The first `rows` rows (dimension 2) of a cache that holds pages (blocks, heads, block size, ...)
// in the order of the table (B, n), or (B, heads, capacity, ...) where there is no table.
at::Tensor rows_in_use(const at::Tensor& cache, const at::Tensor& table, int64_t rows) {
  if (!table.defined()) return cache.narrow(2, 0, rows);
  // Entries beyond a length may be anything, and an index out of range stops the GPU for good.
  const at::Tensor blocks = table.to(at::kLong).clamp(0, cache.size(0) - 1).to(cache.device());
  return cache.index_select(0, blocks.flatten())
      .unflatten(0, table.sizes())
      .transpose(1, 2)
      .flatten(2, 3)
      .narrow(2, 0, rows);
}

}  // namespace

const Composed& composed_backend() {
  static const Composed backend;
  return backend;
}

bool is_plain(const AttentionArgs& args) {
  const auto& q_rows = args.q.sym_size(2);
  const auto& kv_rows = args.k.sym_size(2);
  const bool square = q_rows == kv_rows && args.query_offset.value_or(0) == 0;
  const bool whole = !args.documents.defined() && !args.key_documents.defined() &&
                     !args.key_start.defined() && !args.key_end.defined() && !args.window;
  const bool bare = !args.bias.defined() && !args.post.defined() && !args.sinks.defined() &&
                    args.cap == 0 && args.dropout == 0;
  return whole && bare && !args.want_max && !args.want_entropy && !args.want_head_max &&
         (!args.causal || square) && kv_rows > 0;
}

bool Composed::has_kernel(const AttentionArgs& /*args*/) const { return false; }

AttentionResult Composed::attention_forward(const AttentionArgs& args) const {
  return Composed::attention(args);
}

std::vector<at::Tensor> Composed::attention_backward(const BackwardArgs& /*args*/) const {
  throw Error(
      "attention on this device is composed of torch's operators and has no backward "
      "operator of its own; let autograd differentiate it");
}

void Composed::scale(Tempered& part) {
  const at::Tensor log_n = part.scale.recipe.g.defined() ? part.log_n() : at::Tensor();
  part.operand = scaled(part.operand, composed_scale(part.scale, part.operand, log_n));
}

void Composed::scale_rows(std::array<Tempered, 3>& parts, bool /*causal*/) const {
  for (Tempered& part : parts) scale(part);
}

at::Tensor Composed::plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     bool causal, std::optional<double> scale) const {
  return library_attention({q, k, v, {}}, /*mask=*/{}, causal, scale);
}

AttentionResult Composed::attention(const AttentionArgs& args) const {
  const kernels::Shape shape = kernel_shape(check(args));
  check_composable(args);
  refuse(args.dropout > 0, "dropout (seeded)");
  const bool plain = is_plain(args);
  VisibleKeys keys;
  if (!plain) keys = visible(visible_keys(host_mask(args, shape).mask, shape), shape, args.q);
  const auto log_n = [&] { return plain ? plain_log_n(args, shape) : keys.log_n; };
  const auto key_log_n = [&] {
    return args.key_counts.defined()
               ? log_count(args.key_counts.to(args.q.device()), scale_type(args.q.scalar_type()))
               : log_n();
  };
  std::array<Tempered, 3> parts = {{{args.q, {args.a_q, args.q_recipe}, log_n},
                                    {args.k, {args.a_k, args.k_recipe}, key_log_n},
                                    {args.v, {args.a_v, args.v_recipe}, key_log_n}}};
  scale_rows(parts, plain && args.causal && !args.key_counts.defined());
  const MaskedInputs in{parts[0].operand, parts[1].operand, parts[2].operand, args.bias};
  AttentionResult result;
  result.out = plain ? plain_attention(in.q, in.k, in.v, args.causal, args.scale)
                     : masked_attention(in, keys, args.scale);
  if (args.want_entropy || args.want_max) {
    const Statistics found = statistics(in, keys, args.scale);
    result.lse = found.lse;
    if (args.want_entropy) result.entropy = found.entropy;
    if (args.want_max) result.max = found.max;
  }
  return result;
}

AttentionResult Composed::decode(const DecodeArgs& args) const {
  kernels::Shape shape = kernel_shape(check(args));
  check_composable(args);
  refuse(args.want_entropy, "the row entropy (want_entropy)");
  refuse(args.want_max, "the row maximum (want_max)");
  const HostCache cache = host_cache(args, shape);
  AttentionResult result;
  shape.kv_rows = shape.batch > 0 ? cache.lengths.max().item<int64_t>() : 0;
  if (shape.kv_rows == 0 || shape.q_rows == 0) {
    result.out =
        at::zeros({shape.batch, shape.q_heads, shape.q_rows, shape.v_size}, args.q.options());
    return result;
  }
  const VisibleKeys keys = visible(visible_keys(cache, shape), shape, args.q);
  const auto cached = [&](const at::Tensor& rows, const at::Tensor& given) {
    at::Tensor scale;
    if (given.defined())
      scale = rows_in_use(given.expand(rows.sizes().slice(0, 3)), cache.block_table, shape.kv_rows);
    return scaled(rows_in_use(rows, cache.block_table, shape.kv_rows).to(args.q.scalar_type()),
                  composed_scale({scale, {}}, args.q, {}));
  };
  // What lies beyond a shorter sequence's length is not ours and may be NaN, which no mask stops.
  const at::Tensor unused = at::arange(shape.kv_rows, args.q.device())
                                .ge(cache.lengths.to(args.q.device()).unsqueeze(1))
                                .view({shape.batch, 1, shape.kv_rows, 1});
  const at::Tensor q =
      scaled(args.q, composed_scale({args.a_q, args.q_recipe}, args.q, keys.log_n));
  const at::Tensor k = cached(args.k, args.a_k).masked_fill(unused, 0);
  const at::Tensor v = cached(args.v, args.a_v).masked_fill(unused, 0);
  const at::Tensor bias = args.bias.defined() ? args.bias.narrow(3, 0, shape.kv_rows) : args.bias;
  result.out = masked_attention({q, k, v, bias}, keys, args.scale);
  return result;
}

}  // namespace tempera::ops
