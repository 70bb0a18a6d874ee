#include <ATen/ATen.h>

#include <limits>

#include "tempera/base/error.h"
#include "tempera/ops/backend.h"
#include "tempera/ops/host_mask.h"
#include "tempera/ops/problem.h"

namespace tempera::ops {
namespace {

void refuse(bool given, const char* feature) {
  TEMPERA_CHECK(!given, feature,
                " is not available on this device, where attention is composed of ",
                "torch's own operators; compute on the CPU, or do without it");
}

void check_composable(const AttentionArgs& args) {
  refuse(args.cap > 0, "cap (soft-capped logits)");
  refuse(args.post.defined(), "post (a multiplier behind the cap)");
  refuse(args.sinks.defined(), "sinks (sink logits)");
  refuse(args.dropout > 0, "dropout (seeded)");
  refuse(args.want_max, "the row maximum (want_max)");
  refuse(args.want_entropy, "the row entropy (want_entropy)");
  refuse(args.want_head_max, "the maximum of a head (want_head_max)");
}

// Broadcasts to (B, heads, rows, 1); undefined for 1. log_n: (B, rows).
at::Tensor composed_scale(const at::Tensor& rows, const Recipe& recipe, const at::Tensor& operand,
                          const at::Tensor& log_n) {
  const at::ScalarType real = real_type(operand.scalar_type());
  const auto head = [&](const at::Tensor& numbers) { return numbers.to(real).view({1, -1, 1}); };
  at::Tensor sum;
  const auto add = [&](const at::Tensor& term) { sum = sum.defined() ? sum + term : term; };
  if (recipe.c.defined()) add(head(recipe.c));
  if (recipe.w.defined()) {
    const at::Tensor& source = recipe.source.defined() ? recipe.source : operand;
    add(at::tanh((at::gelu(source.to(real)) * recipe.w.to(real).unsqueeze(1)).sum(-1)));
  }
  if (recipe.g.defined()) add(head(recipe.g) * log_n.unsqueeze(1));
  if (recipe.s.defined()) sum = sum * head(recipe.s);
  if (rows.defined()) sum = sum.defined() ? sum * rows.to(real) : rows.to(real);
  return sum.defined() ? sum.unsqueeze(-1) : sum;
}

at::Tensor scaled(const at::Tensor& operand, const at::Tensor& scale) {
  return scale.defined() ? (operand * scale).to(operand.scalar_type()) : operand;
}

struct VisibleKeys {
  at::Tensor seen;   // (B, 1, query rows, key rows)
  at::Tensor none;   // (B, 1, query rows, 1): the row sees nothing
  at::Tensor log_n;  // (B, query rows)
};

VisibleKeys visible(const HostMask& host, const kernels::Shape& shape, const at::Tensor& q) {
  const at::TensorOptions index = at::TensorOptions().dtype(at::kLong);
  const at::Tensor begin = at::empty({shape.batch, 1, shape.q_rows, 1}, index);
  const at::Tensor end = at::empty_like(begin);
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0; i < shape.q_rows; ++i) {
      const kernels::KeyRange keys = kernels::visible_keys(host.mask, shape, b, i);
      begin.mutable_data_ptr<int64_t>()[b * shape.q_rows + i] = keys.begin;
      end.mutable_data_ptr<int64_t>()[b * shape.q_rows + i] = keys.end;
    }
  const at::Tensor key = at::arange(shape.kv_rows, index.device(q.device()));
  const at::Tensor first = begin.to(q.device());
  const at::Tensor last = end.to(q.device());
  const at::Tensor count = (last - first).clamp_min(1).view({shape.batch, shape.q_rows});
  return {key.ge(first).logical_and(key.lt(last)), last.le(first),
          count.to(real_type(q.scalar_type())).log()};
}

// What scaled_dot_product_attention knows without an explicit mask: every key, or plain causality.
bool is_plain(const AttentionArgs& args, const kernels::Mask& mask, const kernels::Shape& shape) {
  const bool square = shape.q_rows == shape.kv_rows && mask.query_offset == 0;
  return !args.bias.defined() && !mask.key_begin && !args.window && (!args.causal || square) &&
         shape.kv_rows > 0;
}

at::Tensor composed_mask(const at::Tensor& bias, const VisibleKeys& keys, at::ScalarType type) {
  // A row that sees nothing reads everything here and is cleared afterwards: no NaN, no gradient.
  const at::Tensor mask = keys.seen.logical_or(keys.none);
  if (!bias.defined()) return mask;
  return bias.to(type).masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace

AttentionResult attention_composed(const AttentionArgs& args) {
  const kernels::Shape shape = kernel_shape(check(args));
  check_composable(args);
  const HostMask host = host_mask(args, shape);
  const bool plain = is_plain(args, host.mask, shape);
  const bool counted =
      args.q_recipe.g.defined() || args.k_recipe.g.defined() || args.v_recipe.g.defined();
  VisibleKeys keys;
  if (!plain || counted) keys = visible(host, shape, args.q);
  at::Tensor key_log_n = keys.log_n;
  if (counted && args.key_counts.defined())
    key_log_n = args.key_counts.to(keys.log_n.options()).clamp_min(1).log();
  const at::Tensor q = scaled(args.q, composed_scale(args.a_q, args.q_recipe, args.q, keys.log_n));
  const at::Tensor k = scaled(args.k, composed_scale(args.a_k, args.k_recipe, args.k, key_log_n));
  const at::Tensor v = scaled(args.v, composed_scale(args.a_v, args.v_recipe, args.v, key_log_n));
  const bool grouped = shape.q_heads != shape.kv_heads;
  AttentionResult result;
  if (plain) {
    result.out = at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0, args.causal,
                                                  args.scale, grouped);
  } else {
    const at::Tensor mask = composed_mask(args.bias, keys, q.scalar_type());
    result.out = at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0,
                                                  /*is_causal=*/false, args.scale, grouped)
                     .masked_fill(keys.none, 0);
  }
  return result;
}

}  // namespace tempera::ops
