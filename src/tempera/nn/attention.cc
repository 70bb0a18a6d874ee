#include "tempera/nn/attention.h"

#include "tempera/base/error.h"
#include "tempera/nn/dropout.h"
#include "tempera/nn/learned_rope.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

ops::HeadNorm head_norm(QkNorm norm) {
  if (norm == QkNorm::kNone) return ops::HeadNorm::kNone;
  return norm == QkNorm::kWide ? ops::HeadNorm::kAllHeads : ops::HeadNorm::kEachHead;
}

// The gain is there already.
void set_heads(ops::ProjectedOperand& operand, const ops::ProjectedOperand& heads) {
  operand.projection = heads.projection;
  operand.first = heads.first;
  operand.rows = heads.rows;
}

RowInfo source_rows(const Source& source) {
  return {source.x, source.rows.tokens, source.rows.counts.n, source.rows.counts.position};
}

// The heads with their norm, rows (B, heads, T, size).
torch::Tensor normed(const ops::ProjectedOperand& operand, const ops::ProjectedArgs& args) {
  const auto& rows = operand.rows;
  if (args.norm == ops::HeadNorm::kNone) return rows;
  auto lying = rows.transpose(1, 2);
  const bool all = args.norm == ops::HeadNorm::kAllHeads;
  if (all) lying = lying.flatten(2);
  auto done = ops::norm(lying, operand.gain, {}, args.epsilon, /*centred=*/false);
  if (all) done = done.unflatten(2, {rows.size(1), rows.size(3)});
  return done.transpose(1, 2).to(rows.scalar_type());
}

torch::Tensor turned(const ops::ProjectedOperand& operand, const ops::ProjectedArgs& args,
                     const Angles& angles) {
  const auto rows = normed(operand, args);
  if (!angles.cos.defined()) return rows;
  if (angles.learned()) return learned_rotary(rows, angles);
  return ops::rotary(rows, angles.cos, angles.sin, angles.positions);
}

// The operation has no gradients for the tables: norm and rotation are done in front of it. The
// scales have been made, of the rows as they were.
void rotate_learned(ops::ProjectedArgs& args, const Angles& angles) {
  for (auto* operand : {&args.q, &args.k}) {
    const auto rows = learned_rotary(normed(*operand, args), angles);
    set_heads(*operand,
              ops::heads_of(rows.transpose(1, 2).flatten(2), 0, rows.size(1), rows.size(3)));
    operand->gain.reset();
  }
  args.norm = ops::HeadNorm::kNone;
  args.cos.reset();
  args.sin.reset();
  args.positions.reset();
}

// The kernels count the keys that are there: what depends on n is computed here. Its logits are
// those of a softmax over fewer keys.
void suit_spread_rows(ops::ProjectedArgs& args, const SequenceRows& rows) {
  if (!rows.spread) return;
  const auto type = scale_type(args.q.rows.scalar_type());
  for (auto* operand : {&args.q, &args.k, &args.v})
    if (operand->scale.recipe.g.defined())
      operand->scale = {finish(operand->scale, rows.counts.n, type), {}};
  if (!rows.attention_scale.defined()) return;
  auto& scale = args.q.scale.rows;
  const auto factor = rows.attention_scale.to(type);
  scale = scale.defined() ? scale * factor : factor;
}

torch::Tensor no_rows(const torch::Tensor& rows) { return rows.narrow(1, 0, 0); }

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

torch::Tensor Attention::merged(const torch::Tensor& out) const {
  return out_->forward(out.transpose(1, 2).flatten(2));
}

torch::Tensor Attention::forward(const torch::Tensor& x, const Pass& pass, LayerCache* cache) {
  const LayerShape& shape = method_->shape();
  TEMPERA_CHECK(shape.kind != AttentionKind::kCross, "a cross-attention needs a source");
  const auto qkv = qkv_->forward(x);
  const RowInfo rows{x, pass.rows.tokens, counts(pass.rows), pass.rows.counts.position};
  auto args = arguments(pass);
  set_heads(args.q, ops::heads_of(qkv, 0, shape.q_heads, shape.qk_size));
  set_heads(args.k, ops::heads_of(qkv, shape.q_heads, shape.kv_heads, shape.qk_size));
  set_heads(args.v,
            ops::heads_of(qkv, shape.q_heads + shape.kv_heads, shape.kv_heads, shape.v_size));
  if (pass.shared.share) return merged(attend_shared(args, rows, pass));
  args.attention.bias = pass.bias;
  args.attention.key_start = pass.rows.mask.start;
  if (cache) {
    args.cache_lengths = pass.lengths;
    cache->append_state(set_scales(args, rows, rows, cache->last_state()));
    return merged(ops::attend(args, &cache->keys()).out);
  }
  args.attention.documents = pass.rows.mask.documents;
  args.attention.key_end = pass.rows.mask.end;
  return merged(attend(args, rows, rows, pass));
}

torch::Tensor Attention::forward(const torch::Tensor& x, const Pass& pass, const Source& source) {
  const RowInfo queries = cross_queries(x, pass, source.rows.mask, source.x.size(1));
  auto args = cross_arguments(x, pass, source.rows.mask);
  set_source(args, source.x);
  args.attention.documents = pass.rows.mask.documents;
  args.attention.key_documents = source.rows.mask.documents;
  args.attention.key_counts = source.rows.counts.n;
  return merged(attend(args, queries, source_rows(source), pass));
}

void Attention::remember(const Source& source, LayerCache& cache) {
  // No row asks yet.
  const auto none = no_rows(source.x);
  const auto empty = torch::empty({none.size(0), 0}, source.rows.counts.n.options());
  auto args = cross_arguments(none, {}, source.rows.mask);
  set_source(args, source.x);
  set_scales(args, {none, empty, empty, empty}, source_rows(source));
  ops::remember(args, cache.keys());
}

torch::Tensor Attention::forward_cached(const torch::Tensor& x, const Pass& pass,
                                        const SequenceMask& source, LayerCache& cache) {
  const RowInfo queries = cross_queries(x, pass, source, cache.length());
  auto args = cross_arguments(x, pass, source);
  // The keys have had their scales.
  args.k.rows = cache.keys().k.narrow(2, 0, 0);
  args.v.rows = cache.keys().v.narrow(2, 0, 0);
  const RowInfo keys{no_rows(x), no_rows(queries.tokens), no_rows(queries.n),
                     no_rows(queries.position)};
  cache.append_state(set_scales(args, queries, keys, cache.last_state()));
  return merged(ops::attend(args, &cache.keys()).out);
}

// n of a row is the number of source rows that it sees.
RowInfo Attention::cross_queries(const torch::Tensor& x, const Pass& pass,
                                 const SequenceMask& source, int64_t source_rows) const {
  TEMPERA_CHECK(method_->shape().kind == AttentionKind::kCross, "a self-attention has no source");
  const auto n = cross_counts(pass.rows.mask.documents, source.documents, source.start, source.end,
                              x.size(0), x.size(1), source_rows, x.device());
  return {x, pass.rows.tokens, n, pass.rows.counts.position};
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

// Everything but the rows, their scales and the mask.
ops::ProjectedArgs Attention::arguments(const Pass& pass) const {
  ops::ProjectedArgs args{.norm = head_norm(options_.qk_norm), .epsilon = options_.norm_eps};
  args.q.gain = q_gain_;
  args.k.gain = k_gain_;
  args.attention = limits(pass);
  // The positions of two sequences have no distance.
  if (method_->shape().kind == AttentionKind::kCross) return args;
  args.cos = pass.angles.cos;
  args.sin = pass.angles.sin;
  args.positions = pass.angles.positions;
  return args;
}

// Of the queries x, with the source's padding.
ops::ProjectedArgs Attention::cross_arguments(const torch::Tensor& x, const Pass& pass,
                                              const SequenceMask& source) const {
  const LayerShape& shape = method_->shape();
  auto args = arguments(pass);
  set_heads(args.q, ops::heads_of(q_->forward(x), 0, shape.q_heads, shape.qk_size));
  args.attention.key_start = source.start;
  args.attention.key_end = source.end;
  return args;
}

void Attention::set_source(ops::ProjectedArgs& args, const torch::Tensor& source) const {
  const LayerShape& shape = method_->shape();
  const auto kv = kv_->forward(source);
  set_heads(args.k, ops::heads_of(kv, 0, shape.kv_heads, shape.qk_size));
  set_heads(args.v, ops::heads_of(kv, shape.kv_heads, shape.kv_heads, shape.v_size));
}

RowScales Attention::set_scales(ops::ProjectedArgs& args, const RowInfo& queries,
                                const RowInfo& keys, const torch::Tensor& past,
                                const RowShare* share) {
  RowScales scales =
      method_->forward({queries, keys, args.q.rows, args.k.rows, args.v.rows, past, share});
  args.q.scale = scales.q;
  args.k.scale = scales.k;
  args.v.scale = scales.v;
  args.q_n = queries.n;
  args.k_n = keys.n;
  return scales;
}

// The rows of this rank against the keys and values of all ranks. Norm, rotation and scales of a
// key are made where its row is, and the keys travel with them.
torch::Tensor Attention::attend_shared(ops::ProjectedArgs& args, const RowInfo& rows,
                                       const Pass& pass) {
  const SharedRows& shared = pass.shared;
  set_scales(args, rows, rows, {}, shared.share);
  suit_spread_rows(args, pass.rows);
  ops::AttentionArgs all = args.attention;
  all.causal = false;
  all.window.reset();
  all.key_start = options_.window ? shared.window_begin : shared.begin;
  all.key_end = shared.end;
  all.q = turned(args.q, args, pass.angles);
  all.a_q = args.q.scale.rows;
  all.q_recipe = args.q.scale.recipe;
  std::vector<torch::Tensor> own = {turned(args.k, args, pass.angles), args.v.rows};
  const auto add_scale = [&](const ops::ProjectedOperand& operand) {
    if (!operand.scale.present()) return;
    const auto type = scale_type(operand.rows.scalar_type());
    own.push_back(finish(operand.scale, rows.n, type).expand(operand.rows.sizes().slice(0, 3)));
  };
  add_scale(args.k);
  add_scale(args.v);
  const auto lent = shared.share->lend(std::move(own));
  size_t next = 0;
  all.k = lent.whole[next++];
  all.v = lent.whole[next++];
  if (args.k.scale.present()) all.a_k = lent.whole[next++];
  if (args.v.scale.present()) all.a_v = lent.whole[next++];
  const auto out = ops::attention(all).out;
  shared.share->take_back(lent, out);
  return out;
}

torch::Tensor Attention::attend(ops::ProjectedArgs& args, const RowInfo& queries,
                                const RowInfo& keys, const Pass& pass) {
  const RowScales scales = set_scales(args, queries, keys);
  suit_spread_rows(args, pass.rows);
  if (args.cos.defined() && pass.angles.learned()) rotate_learned(args, pass.angles);
  if (!pass.inspection) return ops::attend(args).out;
  auto& wanted = *pass.inspection;
  const bool cross = method_->shape().kind == AttentionKind::kCross;
  if (!wanted.rows.defined()) {
    args.attention.want_entropy = args.attention.want_max = true;
  } else if (wanted.cross == cross) {
    args.pair_rows = wanted.rows;
    args.pair_keys = wanted.keys;
  }
  const auto result = ops::attend(args);
  auto& layer = wanted.layers.emplace_back(inspect_scales(scales, queries, keys));
  layer.weight = result.weight;
  layer.entropy = result.entropy;
  if (!wanted.rows.defined()) add_rows(layer, result.row_entropy, result.row_max, queries);
  return result.out;
}

}  // namespace tempera::nn
