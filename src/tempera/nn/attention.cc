#include "tempera/nn/attention.h"

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/nn/dropout.h"
#include "tempera/ops/fused.h"
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

// Exact from q, k and the row's normaliser: no row of weights is made.
LayerInspection inspect(const ops::AttentionArgs& args, const torch::Tensor& lse,
                        const LayerInputs& inputs, const RowScales& scales,
                        const Inspection& wanted) {
  TEMPERA_CHECK(lse.defined(),
                "attention weights are read from the operator's normaliser, which it does not give "
                "on this device; move the model to the CPU");
  const torch::NoGradGuard no_grad;
  const auto type = scale_type(args.q.scalar_type());
  const auto at_pairs = [](const torch::Tensor& rows, const torch::Tensor& index) {
    return rows.gather(2, index.unsqueeze(1).expand({-1, rows.size(1), -1}));
  };
  LayerInspection found;
  const double scale = args.scale.value_or(1 / std::sqrt(static_cast<double>(args.q.size(3))));
  auto logit = pair_products(args, wanted).to(type) * scale;
  if (scales.q.present()) {
    const auto a_q = finish(scales.q, inputs.queries.n, type);
    logit = logit * at_pairs(a_q, wanted.rows);
    found.a_q = mean_scale(a_q, inputs.queries.position);
  }
  if (scales.k.present()) {
    const auto a_k = finish(scales.k, inputs.keys.n, type);
    logit = logit * at_pairs(a_k, wanted.keys).repeat_interleave(args.q.size(1) / a_k.size(1), 1);
    found.a_k = mean_scale(a_k, inputs.keys.position);
  }
  if (scales.v.present())
    found.a_v = mean_scale(finish(scales.v, inputs.keys.n, type), inputs.keys.position);
  if (args.bias.defined()) {
    const auto flat = args.bias.expand({args.q.size(0), args.q.size(1), -1, -1}).flatten(2);
    logit = logit + at_pairs(flat, wanted.rows * args.k.size(2) + wanted.keys);
  }
  if (args.cap > 0) logit = args.cap * (logit / args.cap).tanh();
  found.weight = (logit - at_pairs(lse, wanted.rows)).exp();
  return found;
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
  const auto [q, k, v] = ops::split_heads(qkv_->forward(x), shape.q_heads, shape.kv_heads);
  const LayerInputs inputs{rows, rows, q, k, v, {}};
  return merged(cache ? attend_cached(inputs, pass, *cache) : attend(inputs, pass, pass.rows));
}

torch::Tensor Attention::forward(const torch::Tensor& x, const Pass& pass, const Source& source) {
  const LayerShape& shape = method_->shape();
  TEMPERA_CHECK(shape.kind == AttentionKind::kCross, "a self-attention has no source");
  const SequenceMask& mask = source.rows.mask;
  const auto n = cross_counts(pass.rows.mask.documents, mask.documents, mask.start, mask.end,
                              x.size(0), x.size(1), source.x.size(1), x.device());
  const auto q = heads_of(q_->forward(x), shape.q_heads);
  const auto kv = heads_of(kv_->forward(source.x), 2 * shape.kv_heads).chunk(2, 1);
  const LayerInputs inputs{
      {x, pass.rows.tokens, n, pass.rows.counts.position},
      {source.x, source.rows.tokens, source.rows.counts.n, source.rows.counts.position},
      q,
      kv[0],
      kv[1],
      {}};
  return merged(attend(inputs, pass, source.rows));
}

// Everything but the temperatures and the mask.
ops::AttentionArgs Attention::arguments(const LayerInputs& inputs, const Pass& pass) const {
  ops::AttentionArgs args;
  args.q = head_norm(inputs.q, q_gain_);
  args.k = head_norm(inputs.k, k_gain_);
  args.v = inputs.v;
  // The positions of two sequences have no distance.
  if (pass.angles.cos.defined() && method_->shape().kind != AttentionKind::kCross) {
    const auto& [cos, sin, positions] = pass.angles;
    args.q = ops::rotary(args.q, cos, sin, positions);
    args.k = ops::rotary(args.k, cos, sin, positions);
  }
  args.causal = method_->shape().kind == AttentionKind::kCausal;
  args.window = options_.window;
  if (options_.scale > 0) args.scale = options_.scale;
  args.cap = options_.cap;
  if (pass.dropout_seed && options_.dropout > 0) {
    args.dropout = options_.dropout;
    args.seed = static_cast<int64_t>(
        dropout_seed(*pass.dropout_seed, method_->shape().layer, DropoutSite::kAttention));
  }
  return args;
}

torch::Tensor Attention::attend(const LayerInputs& inputs, const Pass& pass, const Rows& keys) {
  const RowScales scales = method_->forward(inputs);
  auto args = arguments(inputs, pass);
  args.documents = pass.rows.mask.documents;
  args.key_start = keys.mask.start;
  args.key_end = keys.mask.end;
  if (method_->shape().kind == AttentionKind::kCross) {
    args.key_documents = keys.mask.documents;
    args.key_counts = inputs.keys.n;
  } else {
    args.bias = pass.bias;
  }
  tempera::apply(scales, args);
  const auto result = ops::attention(args);
  if (pass.inspection) {
    auto& wanted = *pass.inspection;
    wanted.layers.push_back(inspect(args, result.lse, inputs, scales, wanted));
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
