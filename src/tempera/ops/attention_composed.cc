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
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

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

// A row of queries sees the keys [first, last), each (B, 1, query rows, 1).
struct VisibleKeys {
  at::Tensor first, last;
  at::Tensor log_n;  // (B, query rows)

  VisibleKeys rows(int64_t from, int64_t count) const {
    return {first.narrow(2, from, count), last.narrow(2, from, count), {}};
  }
  // (B, 1, query rows, 1): the row sees nothing.
  at::Tensor none() const { return last.le(first); }
  // (B, 1, query rows, key rows): for a few rows, since for all of them it may not fit.
  at::Tensor seen(int64_t key_rows) const {
    const at::Tensor key = at::arange(key_rows, first.options());
    return key.ge(first).logical_and(key.lt(last));
  }
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
  const at::Tensor count = (last - first).clamp_min(1).view({shape.batch, shape.q_rows});
  return {first, last, count.to(real_type(q.scalar_type())).log()};
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

struct AttentionLogits {
  bool causal = false;
  std::optional<double> scale;
};

at::Tensor rows_of_bias(const at::Tensor& bias, int64_t from, int64_t count) {
  return bias.defined() && bias.size(2) > 1 ? bias.narrow(2, from, count) : bias;
}

// Of an attention with a mask, the scales applied.
struct MaskedInputs {
  at::Tensor q, k, v, bias;

  MaskedInputs rows(int64_t from, int64_t count) const {
    return {q.narrow(2, from, count), k, v, rows_of_bias(bias, from, count)};
  }
  // The same numbers as leaves of a graph of their own.
  MaskedInputs detached(bool with_bias) const {
    const auto leaf = [](const at::Tensor& tensor) { return tensor.detach().requires_grad_(); };
    return {leaf(q), leaf(k), leaf(v), with_bias ? leaf(bias) : bias};
  }
  std::vector<at::Tensor> learned(bool with_bias) const {
    std::vector<at::Tensor> tensors = {q, k, v};
    if (with_bias) tensors.push_back(bias);
    return tensors;
  }
};

// cuDNN's kernels are the fastest on Hopper and later; libtorch does not choose them by itself.
bool takes_cudnn(const at::Tensor& q, const at::Tensor& v) {
  return q.is_cuda() && q.scalar_type() == at::kBFloat16 && q.size(3) == v.size(3) &&
         q.size(1) == v.size(1) && q.size(3) % 8 == 0 && q.size(3) <= 128 && q.size(2) > 1 &&
         at::globalContext().userEnabledCuDNNSDP() && cuda::prefers_cudnn(q);
}

// Flash attention, where the GPU and the call surely have it: only it knows groups of heads.
bool takes_groups(const at::Tensor& q, const at::Tensor& v) {
  return q.scalar_type() == at::kBFloat16 && q.size(3) == v.size(3) && q.size(3) % 8 == 0 &&
         q.size(3) <= 256 && q.is_cuda() && cuda::has_kernels(q.device());
}

// By one of libtorch's kernels that never hold the logits of all rows. Left alone with groups of
// heads, or with rows that are no whole vectors, libtorch takes the one that does.
at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& mask, const AttentionLogits& logits) {
  if (!mask.defined() && takes_cudnn(q, v))
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(
        q, k, v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0, logits.causal,
        /*return_debug_mask=*/false, logits.scale));
  if (!mask.defined() && takes_groups(q, v))
    return at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0, logits.causal,
                                            logits.scale, /*enable_gqa=*/q.size(1) != k.size(1));
  const auto whole = [&](const at::Tensor& rows) {
    const int64_t groups = q.size(1) / rows.size(1), missing = (8 - rows.size(3) % 8) % 8;
    const at::Tensor all = groups > 1 ? rows.repeat_interleave(groups, 1) : rows;
    return missing > 0 ? at::constant_pad_nd(all, {0, missing}) : all;
  };
  const double scale = logits.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor out = at::scaled_dot_product_attention(
      whole(q), whole(k), whole(v), mask.defined() ? std::optional(mask) : std::nullopt,
      /*dropout_p=*/0, logits.causal, scale);
  return out.size(3) == v.size(3) ? out : out.narrow(3, 0, v.size(3));
}

at::Tensor composed_mask(const at::Tensor& bias, const VisibleKeys& keys, const at::Tensor& k) {
  // A row that sees nothing reads everything here and is cleared afterwards: no NaN, no gradient.
  const at::Tensor mask = keys.seen(k.size(2)).logical_or(keys.none());
  if (!bias.defined()) return mask;
  return bias.to(k.scalar_type())
      .masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor masked_rows(const MaskedInputs& in, const VisibleKeys& keys,
                       std::optional<double> scale) {
  return library_attention(in.q, in.k, in.v, composed_mask(in.bias, keys, in.k), {false, scale})
      .masked_fill(keys.none(), 0);
}

// How many query rows have this many logits.
int64_t rows_at_once(const at::Tensor& q, const at::Tensor& k) {
  constexpr int64_t kLogitsAtOnce = 1 << 26;
  const int64_t logits = std::max<int64_t>(q.size(0) * q.size(1) * k.size(2), 1);
  return std::max<int64_t>(kLogitsAtOnce / logits, 1);
}

// Some rows at a time, and once more in the backward pass: a mask is as large as the logits of one
// head, and libtorch would keep those of all rows.
struct MaskedPieces : torch::autograd::Function<MaskedPieces> {
  using Variables = torch::autograd::variable_list;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& bias, const VisibleKeys& keys,
                            std::optional<double> scale) {
    const MaskedInputs in{q, k, v, bias.value_or(at::Tensor())};
    context->save_for_backward({q, k, v, in.bias, keys.first, keys.last});
    context->saved_data["scale"] = scale;
    std::vector<at::Tensor> pieces;
    for_pieces(q, k, [&](int64_t from, int64_t count) {
      pieces.push_back(masked_rows(in.rows(from, count), keys.rows(from, count), scale));
    });
    return at::cat(pieces, 2);
  }

  static Variables backward(torch::autograd::AutogradContext* context, const Variables& d) {
    const Variables saved = context->get_saved_variables();
    const MaskedInputs in{saved[0], saved[1], saved[2], saved[3]};
    const VisibleKeys keys{saved[4], saved[5], {}};
    const auto scale = context->saved_data["scale"].toOptional<double>();
    MaskedInputs sums{at::empty_like(in.q), at::zeros_like(in.k), at::zeros_like(in.v), {}};
    const bool with_bias = in.bias.defined() && in.bias.requires_grad();
    if (with_bias) sums.bias = at::zeros_like(in.bias);
    for_pieces(in.q, in.k, [&](int64_t from, int64_t count) {
      const at::AutoGradMode with_gradients(true);
      MaskedInputs piece = in.rows(from, count).detached(with_bias);
      const at::Tensor out = masked_rows(piece, keys.rows(from, count), scale);
      const Variables g =
          torch::autograd::grad({out}, piece.learned(with_bias), {d[0].narrow(2, from, count)});
      const at::NoGradGuard no_grad;
      sums.q.narrow(2, from, count).copy_(g[0]);
      sums.k.add_(g[1]);
      sums.v.add_(g[2]);
      if (with_bias) rows_of_bias(sums.bias, from, count).add_(g[3]);
    });
    return {sums.q, sums.k, sums.v, sums.bias, at::Tensor(), at::Tensor()};
  }

 private:
  template <class Piece>
  static void for_pieces(const at::Tensor& q, const at::Tensor& k, const Piece& piece) {
    const int64_t step = rows_at_once(q, k);
    for (int64_t from = 0; from < q.size(2); from += step)
      piece(from, std::min(step, q.size(2) - from));
  }
};

at::Tensor masked_attention(const MaskedInputs& in, const VisibleKeys& keys,
                            std::optional<double> scale) {
  if (in.q.size(2) <= rows_at_once(in.q, in.k)) return masked_rows(in, keys, scale);
  return MaskedPieces::apply(in.q, in.k, in.v, maybe(in.bias), keys, scale);
}

// lse and entropy (B, H, query rows), of some rows at a time: the logits of all may not fit.
void add_statistics(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& args,
                    const VisibleKeys& keys, AttentionResult& result) {
  const at::ScalarType real = real_type(q.scalar_type());
  const double scale = args.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor columns =
      k.to(real).repeat_interleave(q.size(1) / k.size(1), 1).transpose(2, 3) * scale;
  const int64_t step = rows_at_once(q, k);
  std::vector<at::Tensor> lse, entropy;
  for (int64_t first = 0; first == 0 || first < q.size(2); first += step) {
    const int64_t count = std::min(step, q.size(2) - first);
    at::Tensor logits = q.narrow(2, first, count).to(real).matmul(columns);
    if (args.bias.defined()) logits = logits + rows_of_bias(args.bias, first, count).to(real);
    logits = logits.masked_fill(keys.rows(first, count).seen(k.size(2)).logical_not(),
                                -std::numeric_limits<double>::infinity());
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
  result.out =
      plain ? library_attention(q.operand, k.operand, v.operand, {}, {args.causal, args.scale})
            : masked_attention({q.operand, k.operand, v.operand, args.bias}, keys, args.scale);
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
  result.out = masked_attention({q, k, v, bias}, keys, args.scale);
  return result;
}

}  // namespace tempera::ops
