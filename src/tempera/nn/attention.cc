#include "tempera/nn/attention.h"

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/nn/dropout.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/prologue.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

// Up to so many rows the decode kernel, which splits the work over the keys, is the better one.
constexpr int64_t kDecodeRows = 16;

// q.k of the chosen pairs, (B, H, pairs).
torch::Tensor pair_products(const ops::AttentionArgs& args, const Inspection& wanted) {
  const auto pick = [](const torch::Tensor& rows, const torch::Tensor& index) {
    const auto where =
        index.view({index.size(0), 1, -1, 1}).expand({-1, rows.size(1), -1, rows.size(3)});
    return rows.gather(2, where);
  };
  const auto q = pick(args.q, wanted.rows);
  const auto k = pick(args.k, wanted.keys).repeat_interleave(args.q.size(1) / args.k.size(1), 1);
  return (q * k).sum(-1);
}

// (B, T, heads * size) as (B, heads, T, size).
torch::Tensor heads_of(const torch::Tensor& projected, int64_t heads) {
  return projected.unflatten(-1, {heads, -1}).transpose(1, 2);
}

// (heads) of a scale (B, heads, T), over the rows that are no padding.
torch::Tensor mean_scale(const torch::Tensor& scale, const torch::Tensor& position) {
  const auto real = (position >= 0).unsqueeze(1).to(scale.scalar_type());
  return (scale * real).sum(at::IntArrayRef({0, 2})) / real.sum().clamp_min(1);
}

// The scales of all rows, finished; undefined: 1.
struct Finished {
  torch::Tensor q, k, v;
};

Finished finished(const RowScales& scales, const LayerInputs& inputs, torch::ScalarType type) {
  const auto of = [&](const RowScale& scale, const torch::Tensor& n) {
    return scale.present() ? finish(scale, n, type) : torch::Tensor();
  };
  return {of(scales.q, inputs.queries.n), of(scales.k, inputs.keys.n), of(scales.v, inputs.keys.n)};
}

// (B, heads, pairs): a number of the rows (B, heads, T) for each pair.
torch::Tensor at_pairs(const torch::Tensor& rows, const torch::Tensor& index) {
  return rows.gather(2, index.unsqueeze(1).expand({-1, rows.size(1), -1}));
}

// (B, H, pairs), exact from q, k and the row's normaliser: no row of weights is made.
torch::Tensor pair_weights(const ops::AttentionArgs& args, const torch::Tensor& lse,
                           const Finished& scales, const Inspection& wanted) {
  TEMPERA_CHECK(lse.defined(),
                "attention weights are read from the operator's normaliser, which it does not give "
                "on this device; move the model to the CPU");
  const double scale = args.scale.value_or(1 / std::sqrt(static_cast<double>(args.q.size(3))));
  auto logit = pair_products(args, wanted).to(scale_type(args.q.scalar_type())) * scale;
  if (scales.q.defined()) logit = logit * at_pairs(scales.q, wanted.rows);
  if (scales.k.defined())
    logit = logit *
            at_pairs(scales.k, wanted.keys).repeat_interleave(args.q.size(1) / scales.k.size(1), 1);
  if (args.bias.defined()) {
    const auto flat = args.bias.expand({args.q.size(0), args.q.size(1), -1, -1}).flatten(2);
    logit = logit + at_pairs(flat, wanted.rows * args.k.size(2) + wanted.keys);
  }
  if (args.cap > 0) logit = args.cap * (logit / args.cap).tanh();
  return (logit - at_pairs(lse, wanted.rows)).exp();
}

LayerInspection mean_scales(const Finished& scales, const LayerInputs& inputs) {
  const auto mean = [](const torch::Tensor& scale, const RowInfo& rows) {
    return scale.defined() ? mean_scale(scale, rows.position) : scale;
  };
  return {.weight = {},
          .entropy = {},
          .a_q = mean(scales.q, inputs.queries),
          .a_k = mean(scales.k, inputs.keys),
          .a_v = mean(scales.v, inputs.keys)};
}

}  // namespace

Attention::Attention(const AttentionOptions& options, std::shared_ptr<Method> method)
    : options_(options), method_(std::move(method)) {
  const LayerShape& shape = method_->shape();
  const int64_t q = shape.q_heads * shape.qk_size;
  const int64_t kv = shape.kv_heads * (shape.qk_size + shape.v_size);
  const auto linear = [&](const char* name, int64_t inputs, int64_t outputs,
                          AttentionBias least = AttentionBias::kInputs) {
    return register_module(
        name, std::make_shared<Linear>(inputs, outputs, options.bias >= least, options.lora));
  };
  if (shape.kind == AttentionKind::kCross) {
    q_ = linear("q", options.width, q);
    kv_ = linear("kv", options.width, kv);
  } else {
    qkv_ = linear("qkv", options.width, q + kv);
  }
  out_ = linear("out", shape.q_heads * shape.v_size, options.width, AttentionBias::kAll);
  if (options.qk_norm >= QkNorm::kGain) {
    const bool wide = options.qk_norm == QkNorm::kWide;
    const auto gain = [&](const char* name, int64_t heads) {
      return register_parameter(name, torch::empty({(wide ? heads : 1) * shape.qk_size}));
    };
    q_gain_ = gain("q_norm", shape.q_heads);
    k_gain_ = gain("k_norm", shape.kv_heads);
  }
  register_module("temperature", method_);
}

// Rows (B, heads, T, size), which lie as (B, T, heads, size).
torch::Tensor Attention::head_norm(const torch::Tensor& rows, const torch::Tensor& gain) const {
  if (options_.qk_norm == QkNorm::kNone) return rows;
  const bool wide = options_.qk_norm == QkNorm::kWide;
  auto lying = rows.transpose(1, 2);
  if (wide) lying = lying.flatten(2);
  auto normed = ops::norm(lying, gain, {}, options_.norm_eps, /*centred=*/false);
  if (wide) normed = normed.unflatten(2, {rows.size(1), rows.size(3)});
  return normed.transpose(1, 2).to(rows.scalar_type());
}

torch::Tensor Attention::merged(const torch::Tensor& out) const {
  return out_->forward(out.transpose(1, 2).flatten(2));
}

torch::Tensor Attention::forward(const torch::Tensor& x, const Pass& pass, LayerCache* cache) {
  const LayerShape& shape = method_->shape();
  TEMPERA_CHECK(shape.kind != AttentionKind::kCross, "a cross-attention needs a source");
  const RowInfo rows{x, pass.rows.tokens, counts(pass.rows), pass.rows.counts.position};
  const auto qkv = qkv_->forward(x);
  if (!cache && has_prologue(qkv, pass)) return merged(attend_projected(qkv, rows, pass));
  const auto [q, k, v] = ops::split_heads(qkv, shape.q_heads, shape.kv_heads);
  const LayerInputs inputs{rows, rows, q, k, v, {}};
  return merged(cache ? attend_cached(inputs, pass, *cache) : attend(inputs, pass, pass.rows));
}

torch::Tensor Attention::forward(const torch::Tensor& x, const Pass& pass, const Source& source) {
  const RowInfo queries = cross_queries(x, pass, source.rows.mask, source.x.size(1));
  const LayerInputs inputs = cross_inputs(queries, source);
  return merged(attend(inputs, pass, source.rows));
}

void Attention::remember(const Source& source, LayerCache& cache) {
  // No row asks yet.
  const auto none = source.x.narrow(1, 0, 0);
  const auto empty = torch::empty({none.size(0), 0}, source.rows.counts.n.options());
  const LayerInputs inputs = cross_inputs({none, empty, empty, empty}, source);
  cache.append(head_norm(inputs.k, k_gain_), inputs.v, method_->forward(inputs), inputs.keys.n);
}

torch::Tensor Attention::forward_cached(const torch::Tensor& x, const Pass& pass,
                                        const SequenceMask& source, LayerCache& cache) {
  const auto none = [](const torch::Tensor& rows, int64_t axis) { return rows.narrow(axis, 0, 0); };
  const RowInfo queries = cross_queries(x, pass, source, cache.length());
  // The keys have had their scales.
  const LayerInputs inputs{
      queries,
      {none(x, 1), none(queries.tokens, 1), none(queries.n, 1), none(queries.position, 1)},
      heads_of(q_->forward(x), method_->shape().q_heads),
      none(cache.k(), 2),
      none(cache.v(), 2),
      cache.state().last()};
  const RowScales scales = method_->forward(inputs);
  cache.append_state(scales);
  auto args = arguments(inputs, pass);
  args.k = cache.k();
  args.v = cache.v();
  args.a_q = scales.q.rows;
  args.q_recipe = scales.q.recipe;
  args.a_k = cache.a_k();
  args.a_v = cache.a_v();
  args.key_start = source.start;
  args.key_end = source.end;
  return merged(ops::attention(args).out);
}

// n of a row is the number of source rows that it sees.
RowInfo Attention::cross_queries(const torch::Tensor& x, const Pass& pass,
                                 const SequenceMask& source, int64_t source_rows) const {
  TEMPERA_CHECK(method_->shape().kind == AttentionKind::kCross, "a self-attention has no source");
  const auto n = cross_counts(pass.rows.mask.documents, source.documents, source.start, source.end,
                              x.size(0), x.size(1), source_rows, x.device());
  return {x, pass.rows.tokens, n, pass.rows.counts.position};
}

LayerInputs Attention::cross_inputs(const RowInfo& queries, const Source& source) const {
  const LayerShape& shape = method_->shape();
  const auto kv = heads_of(kv_->forward(source.x), 2 * shape.kv_heads).chunk(2, 1);
  const auto& counts = source.rows.counts;
  return {queries,
          {source.x, source.rows.tokens, counts.n, counts.position},
          heads_of(q_->forward(queries.x), shape.q_heads),
          kv[0],
          kv[1],
          {}};
}

// What is the same for all rows.
ops::AttentionArgs Attention::limits(const Pass& pass) const {
  ops::AttentionArgs args;
  args.causal = method_->shape().kind == AttentionKind::kCausal;
  args.window = options_.window;
  if (options_.scale > 0) args.scale = options_.scale;
  args.cap = options_.cap;
  if (pass.dropout_seed && options_.dropout > 0) {
    const bool cross = method_->shape().kind == AttentionKind::kCross;
    args.dropout = options_.dropout;
    args.seed = static_cast<int64_t>(
        dropout_seed(*pass.dropout_seed, method_->shape().layer,
                     cross ? DropoutSite::kCrossAttention : DropoutSite::kAttention));
  }
  return args;
}

// Everything but the temperatures and the mask.
ops::AttentionArgs Attention::arguments(const LayerInputs& inputs, const Pass& pass) const {
  ops::AttentionArgs args = limits(pass);
  args.q = head_norm(inputs.q, q_gain_);
  args.k = head_norm(inputs.k, k_gain_);
  args.v = inputs.v;
  // The positions of two sequences have no distance.
  if (pass.angles.cos.defined() && method_->shape().kind != AttentionKind::kCross) {
    const auto& [cos, sin, positions] = pass.angles;
    args.q = ops::rotary(args.q, cos, sin, positions);
    args.k = ops::rotary(args.k, cos, sin, positions);
  }
  return args;
}

void Attention::set_mask(ops::AttentionArgs& args, const Pass& pass, const Rows& keys) const {
  args.documents = pass.rows.mask.documents;
  args.key_start = keys.mask.start;
  args.key_end = keys.mask.end;
  if (method_->shape().kind == AttentionKind::kCross)
    args.key_documents = keys.mask.documents;
  else
    args.bias = pass.bias;
}

bool Attention::has_prologue(const torch::Tensor& qkv, const Pass& pass) const {
  const LayerShape& shape = method_->shape();
  const int64_t pairs = pass.angles.cos.defined() ? pass.angles.cos.size(1) : 0;
  return !pass.inspection && shape.qk_size == shape.v_size && options_.qk_norm != QkNorm::kWide &&
         ops::has_prologue(qkv, shape.qk_size, pairs);
}

torch::Tensor Attention::attend_projected(const torch::Tensor& qkv, const RowInfo& rows,
                                          const Pass& pass) {
  const LayerShape& shape = method_->shape();
  const auto type = scale_type(qkv.scalar_type());
  // Parts of the projection and no copies: a method that reads none of them costs nothing.
  const auto heads = qkv.unflatten(2, {-1, shape.qk_size}).transpose(1, 2);
  const auto part = [&](int64_t first, int64_t count) { return heads.narrow(1, first, count); };
  const LayerInputs inputs{rows,
                           rows,
                           part(0, shape.q_heads),
                           part(shape.q_heads, shape.kv_heads),
                           part(shape.q_heads + shape.kv_heads, shape.kv_heads),
                           {}};
  const RowScales scales = method_->forward(inputs);
  ops::PrologueArgs prologue{.x = qkv, .size = shape.qk_size, .operands = {}};
  prologue.epsilon = options_.norm_eps;
  const bool causal_rows = shape.kind == AttentionKind::kCausal && !options_.window &&
                           !pass.rows.mask.is_packed_or_padded();
  prologue.cos = pass.angles.cos;
  prologue.sin = pass.angles.sin;
  prologue.positions = pass.angles.positions;
  const auto add = [&](const torch::Tensor& raw, const RowScale& scale, const torch::Tensor& gain,
                       bool is_value) {
    ops::PrologueOperand operand{.heads = raw.size(1),
                                 .norm = !is_value && options_.qk_norm != QkNorm::kNone,
                                 .rotate = !is_value && prologue.cos.defined(),
                                 .gain = gain,
                                 .rows = scale.rows,
                                 .recipe = scale.recipe};
    if (operand.recipe.source.is_same(raw)) operand.recipe.source.reset();
    if (operand.recipe.source.defined()) {
      operand.rows = finish(scale, rows.n, type);
      operand.recipe = {};
    }
    if (operand.recipe.g.defined() && !causal_rows && !prologue.log_n.defined())
      prologue.log_n = log_count(rows.n, type);
    prologue.operands.push_back(operand);
  };
  add(inputs.q, scales.q, q_gain_, /*is_value=*/false);
  add(inputs.k, scales.k, k_gain_, /*is_value=*/false);
  add(inputs.v, scales.v, {}, /*is_value=*/true);
  auto args = limits(pass);
  set_mask(args, pass, pass.rows);
  const auto finished = ops::prologue(prologue);
  args.q = finished[0];
  args.k = finished[1];
  args.v = finished[2];
  return ops::attention(args).out;
}

torch::Tensor Attention::attend(const LayerInputs& inputs, const Pass& pass, const Rows& keys) {
  const RowScales scales = method_->forward(inputs);
  auto args = arguments(inputs, pass);
  set_mask(args, pass, keys);
  const bool cross = method_->shape().kind == AttentionKind::kCross;
  if (cross) args.key_counts = inputs.keys.n;
  tempera::apply(scales, args);
  args.want_entropy = pass.inspection != nullptr;
  const auto result = ops::attention(args);
  if (pass.inspection) {
    const torch::NoGradGuard no_grad;
    auto& wanted = *pass.inspection;
    const auto all = finished(scales, inputs, scale_type(args.q.scalar_type()));
    auto found = mean_scales(all, inputs);
    if (wanted.cross == cross) {
      found.weight = pair_weights(args, result.lse, all, wanted);
      found.entropy = at_pairs(result.entropy, wanted.rows);
    }
    wanted.layers.push_back(std::move(found));
  }
  return result.out;
}

torch::Tensor Attention::attend_cached(const LayerInputs& raw, const Pass& pass,
                                       LayerCache& cache) {
  LayerInputs inputs = raw;
  inputs.past = cache.state().last();
  const RowScales scales = method_->forward(inputs);
  auto args = arguments(inputs, pass);
  const int64_t first = cache.length();
  cache.append(args.k, args.v, scales, inputs.keys.n);
  const int64_t rows = args.q.size(2);
  if (rows <= kDecodeRows) {
    ops::DecodeArgs decode;
    decode.q = args.q;
    decode.k = cache.k();
    decode.v = cache.v();
    decode.lengths = pass.lengths;
    decode.a_q = scales.q.rows;
    decode.q_recipe = scales.q.recipe;
    decode.a_k = cache.a_k();
    decode.a_v = cache.a_v();
    decode.bias = pass.bias;
    decode.key_start = pass.rows.mask.start;
    decode.window = options_.window;
    decode.scale = args.scale;
    decode.cap = args.cap;
    return ops::decode(decode).out;
  }
  const auto used = [&](const torch::Tensor& kept) {
    return kept.defined() ? kept.narrow(2, 0, cache.length()) : kept;
  };
  args.k = used(cache.k());
  args.v = used(cache.v());
  args.a_q = scales.q.rows;
  args.q_recipe = scales.q.recipe;
  args.a_k = used(cache.a_k());
  args.a_v = used(cache.a_v());
  if (pass.bias.defined()) args.bias = pass.bias.narrow(3, 0, cache.length());
  args.key_start = pass.rows.mask.start;
  args.query_offset = first;
  return ops::attention(args).out;
}

}  // namespace tempera::nn
