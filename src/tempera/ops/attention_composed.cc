#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/ops/backend.h"
#include "tempera/ops/cuda.h"
#include "tempera/ops/host_mask.h"
#include "tempera/ops/problem.h"
#include "tempera/ops/prologue.h"

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
  refuse(args.want_max, "the row maximum (want_max)");
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
  if (recipe.g.defined()) add(head(slope_of(recipe)) * log_n.unsqueeze(1));
  if (recipe.s.defined()) sum = sum * head(recipe.s);
  if (rows.defined()) sum = sum.defined() ? sum * rows.to(real) : rows.to(real);
  return sum.defined() ? sum.unsqueeze(-1) : sum;
}

at::Tensor scaled(const at::Tensor& operand, const at::Tensor& scale) {
  return scale.defined() ? (operand * scale).to(operand.scalar_type()) : operand;
}

// One of q, k and v with its temperature.
struct Tempered {
  at::Tensor operand;
  const at::Tensor& rows;
  const Recipe& recipe;
  std::function<at::Tensor()> log_n;  // gives (B, rows)

  bool active() const {
    return rows.defined() || recipe.c.defined() || recipe.w.defined() || recipe.g.defined() ||
           recipe.s.defined();
  }
  bool has_kernel() const {
    return !recipe.source.defined() && has_prologue(operand, operand.size(3), 0);
  }
};

// In one pass over all that have a kernel. log_n: of all of them; undefined: log(t + 1).
void scale_in_one_pass(const std::vector<Tempered*>& parts, const at::Tensor& log_n) {
  if (parts.empty()) return;
  PrologueArgs args{.x = {}, .size = parts.front()->operand.size(3), .operands = {}};
  args.log_n = log_n;
  for (const Tempered* part : parts)
    args.operands.push_back({.heads = part->operand.size(1),
                             .x = part->operand,
                             .rows = part->rows,
                             .recipe = part->recipe});
  const auto scaled_rows = prologue(args);
  for (size_t i = 0; i < parts.size(); ++i) parts[i]->operand = scaled_rows[i];
}

// causal: all have the same rows, of which row t sees t + 1 keys.
void scale(std::array<Tempered, 3>& parts, bool causal) {
  std::vector<Tempered*> together;
  for (Tempered& part : parts) {
    if (!part.active()) continue;
    const bool counted = part.recipe.g.defined();
    if (!part.has_kernel())
      part.operand = scaled(part.operand, composed_scale(part.rows, part.recipe, part.operand,
                                                         counted ? part.log_n() : at::Tensor()));
    else if (causal && part.operand.size(3) == parts[0].operand.size(3))
      together.push_back(&part);
    else
      scale_in_one_pass({&part}, counted ? part.log_n() : at::Tensor());
  }
  scale_in_one_pass(together, {});
}

struct VisibleKeys {
  at::Tensor seen;   // (B, 1, query rows, key rows)
  at::Tensor none;   // (B, 1, query rows, 1): the row sees nothing
  at::Tensor log_n;  // (B, query rows)
};

// ranges: (B, query rows).
VisibleKeys visible(const std::vector<kernels::KeyRange>& ranges, const kernels::Shape& shape,
                    const at::Tensor& q) {
  const at::TensorOptions index = at::TensorOptions().dtype(at::kLong);
  const at::Tensor host = at::empty({2, shape.batch, 1, shape.q_rows, 1}, index);
  int64_t* begin = host.mutable_data_ptr<int64_t>();
  int64_t* end = begin + ranges.size();
  for (size_t row = 0; row < ranges.size(); ++row) {
    begin[row] = ranges[row].begin;
    end[row] = ranges[row].end;
  }
  const at::Tensor both = host.to(q.device());
  const at::Tensor first = both[0], last = both[1];
  const at::Tensor key = at::arange(shape.kv_rows, index.device(q.device()));
  const at::Tensor count = (last - first).clamp_min(1).view({shape.batch, shape.q_rows});
  return {key.ge(first).logical_and(key.lt(last)), last.le(first),
          count.to(real_type(q.scalar_type())).log()};
}

std::vector<kernels::KeyRange> visible_keys(const kernels::Mask& mask,
                                            const kernels::Shape& shape) {
  std::vector<kernels::KeyRange> ranges;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0; i < shape.q_rows; ++i)
      ranges.push_back(kernels::visible_keys(mask, shape, b, i));
  return ranges;
}

// log n (B, rows) of the queries of a plain attention, made where q lies.
at::Tensor plain_log_n(const AttentionArgs& args, const kernels::Shape& shape) {
  const auto options = args.q.options().dtype(real_type(args.q.scalar_type()));
  const at::Tensor n = args.causal ? at::arange(1, shape.q_rows + 1, options)
                                   : at::full({shape.q_rows}, shape.kv_rows, options);
  return n.log_().expand({shape.batch, shape.q_rows});
}

// cuDNN's kernels are the fastest on Hopper and later; libtorch does not choose them by itself.
bool takes_cudnn(const at::Tensor& q, const at::Tensor& v) {
  return q.is_cuda() && q.scalar_type() == at::kBFloat16 && q.size(3) == v.size(3) &&
         q.size(1) == v.size(1) && q.size(3) % 8 == 0 && q.size(3) <= 128 && q.size(2) > 1 &&
         at::globalContext().userEnabledCuDNNSDP() && cuda::prefers_cudnn(q);
}

at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionArgs& args) {
  if (takes_cudnn(q, v))
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(
        q, k, v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0, args.causal,
        /*return_debug_mask=*/false, args.scale));
  return at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0, args.causal, args.scale,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

at::Tensor composed_mask(const at::Tensor& bias, const VisibleKeys& keys, at::ScalarType type) {
  // A row that sees nothing reads everything here and is cleared afterwards: no NaN, no gradient.
  const at::Tensor mask = keys.seen.logical_or(keys.none);
  if (!bias.defined()) return mask;
  return bias.to(type).masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& bias, const VisibleKeys& keys,
                            std::optional<double> scale) {
  const at::Tensor mask = composed_mask(bias, keys, q.scalar_type());
  return at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0, /*is_causal=*/false,
                                          scale, /*enable_gqa=*/q.size(1) != k.size(1))
      .masked_fill(keys.none, 0);
}

// lse and entropy (B, H, query rows), of some rows at a time: the logits of all may not fit.
void add_statistics(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& args,
                    const VisibleKeys& keys, AttentionResult& result) {
  constexpr int64_t kLogitsAtOnce = 1 << 26;
  const at::ScalarType real = real_type(q.scalar_type());
  const double scale = args.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor columns =
      k.to(real).repeat_interleave(q.size(1) / k.size(1), 1).transpose(2, 3) * scale;
  const int64_t row = std::max<int64_t>(q.size(0) * q.size(1) * k.size(2), 1);
  const int64_t step = std::max<int64_t>(kLogitsAtOnce / row, 1);
  std::vector<at::Tensor> lse, entropy;
  for (int64_t first = 0; first == 0 || first < q.size(2); first += step) {
    const auto part = [&](const at::Tensor& rows) {
      return rows.narrow(2, first, std::min(step, q.size(2) - first));
    };
    at::Tensor logits = part(q).to(real).matmul(columns);
    if (args.bias.defined())
      logits = logits + (args.bias.size(2) == 1 ? args.bias : part(args.bias)).to(real);
    logits =
        logits.masked_fill(part(keys.seen).logical_not(), -std::numeric_limits<double>::infinity());
    lse.push_back(logits.logsumexp(-1));
    const at::Tensor finite = lse.back().masked_fill(lse.back().isinf(), 0);
    const at::Tensor weights = (logits - finite.unsqueeze(-1)).exp();
    entropy.push_back(finite - (weights * logits.masked_fill(weights.eq(0), 0)).sum(-1));
  }
  result.lse = at::cat(lse, 2);
  result.entropy = at::cat(entropy, 2);
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

AttentionResult attention_composed(const AttentionArgs& args) {
  const kernels::Shape shape = kernel_shape(check(args));
  check_composable(args);
  refuse(args.dropout > 0, "dropout (seeded)");
  const bool plain = is_plain(args);
  VisibleKeys keys;
  if (!plain) keys = visible(visible_keys(host_mask(args, shape).mask, shape), shape, args.q);
  const auto log_n = [&] { return plain ? plain_log_n(args, shape) : keys.log_n; };
  const auto key_log_n = [&] {
    if (!args.key_counts.defined()) return log_n();
    return args.key_counts.to(real_type(args.q.scalar_type())).clamp_min(1).log();
  };
  std::array<Tempered, 3> parts = {{{args.q, args.a_q, args.q_recipe, log_n},
                                    {args.k, args.a_k, args.k_recipe, key_log_n},
                                    {args.v, args.a_v, args.v_recipe, key_log_n}}};
  scale(parts, plain && args.causal && !args.key_counts.defined());
  const auto& [q, k, v] = parts;
  AttentionResult result;
  result.out = plain
                   ? library_attention(q.operand, k.operand, v.operand, args)
                   : masked_attention(q.operand, k.operand, v.operand, args.bias, keys, args.scale);
  if (args.want_entropy) add_statistics(q.operand, k.operand, args, keys, result);
  return result;
}

AttentionResult decode_composed(const DecodeArgs& args) {
  kernels::Shape shape = kernel_shape(check(args));
  check_composable(args);
  refuse(args.want_entropy, "the row entropy (want_entropy)");
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
    return scaled(rows_in_use(rows, cache.block_table, shape.kv_rows),
                  composed_scale(scale, {}, rows, {}));
  };
  // What lies beyond a shorter sequence's length is not ours and may be NaN, which no mask stops.
  const at::Tensor unused = at::arange(shape.kv_rows, args.q.device())
                                .ge(cache.lengths.to(args.q.device()).unsqueeze(1))
                                .view({shape.batch, 1, shape.kv_rows, 1});
  const at::Tensor q = scaled(args.q, composed_scale(args.a_q, args.q_recipe, args.q, keys.log_n));
  const at::Tensor k = cached(args.k, args.a_k).masked_fill(unused, 0);
  const at::Tensor v = cached(args.v, args.a_v).masked_fill(unused, 0);
  const at::Tensor bias = args.bias.defined() ? args.bias.narrow(3, 0, shape.kv_rows) : args.bias;
  result.out = masked_attention(q, k, v, bias, keys, args.scale);
  return result;
}

}  // namespace tempera::ops
