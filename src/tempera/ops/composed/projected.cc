#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tempera/base/error.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/pairs.h"

namespace tempera::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Up to so many rows the decode kernel, which splits the work over the keys, is the better one.
constexpr int64_t kDecodeRows = 16;

// The parts of a projection (B, T, columns), each as (B, heads, T, size): copies that lie as
// (B, T, heads, size), whose gradients come together without a sum over the whole projection.
struct SplitFunction : torch::autograd::Function<SplitFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& projection,
                               const std::vector<int64_t>& heads, int64_t size) {
    const int64_t batch = projection.size(0), rows = projection.size(1);
    const Tensor joint = projection.view({batch, rows, -1, size});
    variable_list parts;
    int64_t first = 0;
    for (const int64_t count : heads) {
      parts.push_back(at::empty({batch, rows, count, size}, projection.options()).transpose(1, 2));
      parts.back().copy_(joint.narrow(2, first, count).transpose(1, 2));
      first += count;
    }
    context->saved_data["sizes"] = projection.sizes().vec();
    return parts;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    const auto sizes = context->saved_data["sizes"].toIntVector();
    const int64_t size = d[0].size(3);
    const Tensor d_joint = at::empty({sizes[0], sizes[1], sizes[2] / size, size}, d[0].options());
    int64_t first = 0;
    for (const Tensor& part : d) {
      d_joint.narrow(2, first, part.size(1)).copy_(part.transpose(1, 2));
      first += part.size(1);
    }
    return {d_joint.view(sizes), Tensor(), Tensor()};
  }
};

// Whether these operands, in this order, are all of one projection.
bool fill_projection(const std::vector<const ProjectedOperand*>& operands) {
  int64_t next = 0;
  for (const ProjectedOperand* operand : operands) {
    if (!operand->projection.is_same(operands[0]->projection) || operand->first != next)
      return false;
    next += operand->rows.size(1);
  }
  return next * operands[0]->rows.size(3) == operands[0]->projection.size(2);
}

std::vector<Tensor> split(const std::vector<const ProjectedOperand*>& operands) {
  RECORD_FUNCTION("tempera::split_heads", {});
  std::vector<Tensor> rows;
  std::vector<int64_t> heads;
  for (const ProjectedOperand* operand : operands) {
    rows.push_back(operand->rows);
    heads.push_back(operand->rows.size(1));
  }
  // One that has the projection for itself is a view already.
  if (operands.size() == 1 || !wants_gradient({operands[0]->projection}) ||
      !fill_projection(operands))
    return rows;
  return SplitFunction::apply(operands[0]->projection.contiguous(), heads, rows[0].size(3));
}

// q, k and v, of those that are there.
std::array<Tensor, 3> split(const ProjectedArgs& args) {
  const std::array<const ProjectedOperand*, 3> all = {&args.q, &args.k, &args.v};
  std::array<Tensor, 3> rows;
  for (size_t first = 0; first < all.size();) {
    size_t end = first + 1;
    while (end < all.size() && all[end]->projection.is_same(all[first]->projection)) ++end;
    if (all[first]->projection.defined()) {
      const auto parts = split({all.begin() + first, all.begin() + end});
      std::copy(parts.begin(), parts.end(), rows.begin() + static_cast<ptrdiff_t>(first));
    }
    first = end;
  }
  return rows;
}

// The recipe of an operand that lies elsewhere now.
Recipe moved(const ProjectedOperand& operand, const Tensor& rows) {
  Recipe recipe = operand.scale.recipe;
  if (recipe.source.defined() && recipe.source.is_same(operand.rows)) recipe.source = rows;
  return recipe;
}

// Puts rows (B, Hkv, T, ...) into blocks (blocks, Hkv, block size, ...).
void put_rows(const Tensor& blocks, const Tensor& rows, const Tensor& slots) {
  const Tensor flat = slots.flatten();
  const int64_t size = blocks.size(2);
  blocks.transpose(1, 2).index_put_({flat.div(size, "floor"), flat.remainder(size)},
                                    rows.transpose(1, 2).flatten(0, 1).to(blocks.scalar_type()));
}

// The first `length` rows of the only sequence, (1, Hkv, length, ...).
Tensor rows_of_blocks(const Tensor& blocks, const Tensor& table, int64_t length) {
  return blocks.index_select(0, table[0].to(at::kLong))
      .transpose(1, 2)
      .flatten(0, 1)
      .narrow(0, 0, length)
      .transpose(0, 1)
      .unsqueeze(0);
}

// Behind what the cache holds, (B, Hkv, T, ...).
void put(const Tensor& kept, const Tensor& rows, const KeyCache& cache) {
  if (cache.block_table.defined())
    put_rows(kept, rows, cache.slots);
  else
    kept.narrow(2, cache.length, rows.size(2)).copy_(rows);
}

void put_scale(Tensor& kept, const Tensor& scale, const KeyCache& cache) {
  if (!scale.defined()) return;
  if (!kept.defined()) kept = at::ones(cache.k.sizes().slice(0, 3), scale.options());
  put(kept, scale, cache);
}

Tensor finished(const RowScale& scale, const Tensor& n, const Tensor& like) {
  return scale.present() ? finish(scale, n, scale_type(like.scalar_type())) : Tensor();
}

}  // namespace

Tensor Composed::head_norm(const Tensor& rows, const Tensor& gain,
                           const ProjectedArgs& args) const {
  if (args.norm == HeadNorm::kNone) return rows;
  const bool over_all = args.norm == HeadNorm::kAllHeads;
  Tensor lying = rows.transpose(1, 2);
  if (over_all) lying = lying.flatten(2);
  RECORD_FUNCTION("tempera::norm", {});
  Tensor normed = norm(lying, {.gain = gain, .bias = {}, .epsilon = args.epsilon});
  if (over_all) normed = normed.unflatten(2, {rows.size(1), rows.size(3)});
  return normed.transpose(1, 2).to(rows.scalar_type());
}

// q, k and v normed and rotated, their scales as recipes.
AttentionArgs Composed::prepared(const ProjectedArgs& args) const {
  const auto [q, k, v] = split(args);
  AttentionArgs ready = args.attention;
  const auto turned = [&](const Tensor& rows, const Tensor& gain) {
    if (!rows.defined()) return rows;
    const Tensor normed = head_norm(rows, gain, args);
    if (!args.cos.defined()) return normed;
    RECORD_FUNCTION("tempera::rotary", {});
    return rotary(normed, args.cos, args.sin, args.positions);
  };
  ready.q = turned(q, args.q.gain);
  ready.k = turned(k, args.k.gain);
  ready.v = v;
  ready.a_q = args.q.scale.rows;
  ready.a_k = args.k.scale.rows;
  ready.a_v = args.v.scale.rows;
  ready.q_recipe = moved(args.q, q);
  ready.k_recipe = moved(args.k, k);
  ready.v_recipe = moved(args.v, v);
  return ready;
}

ProjectedResult Composed::attend(const ProjectedArgs& args, KeyCache* cache) const {
  AttentionArgs ready = prepared(args);
  if (cache) return {.out = attend_cached(args, ready, *cache).out};
  const bool pairs = args.pair_rows.defined();
  ready.want_entropy = ready.want_entropy || pairs;
  const AttentionResult found = ops::attention(ready);
  ProjectedResult result{.out = found.out, .row_entropy = found.entropy, .row_max = found.max};
  if (!pairs) return result;
  const at::NoGradGuard no_grad;
  const PairScales scales{finished(args.q.scale, args.q_n, ready.q),
                          finished(args.k.scale, args.k_n, ready.k)};
  result.weight = pair_weights(ready, found.lse, scales, args.pair_rows, args.pair_keys);
  result.entropy = at_pairs(found.entropy, args.pair_rows);
  return result;
}

Composed::Quantized Composed::quantized(const Tensor& rows) const {
  const Tensor wide = rows.to(at::kFloat);
  const Tensor most = wide.abs().amax(3);
  const Tensor inverse = at::where(most > 0, 127 / most, 0);
  return {(wide * inverse.unsqueeze(3)).round().to(at::kChar), most / 127};
}

void Composed::append(const ProjectedArgs& args, const AttentionArgs& ready,
                      KeyCache& cache) const {
  const int64_t rows = ready.k.size(2);
  TEMPERA_CHECK(cache.length + rows <= cache.capacity(), "the cache has room for ",
                cache.capacity(), " rows: ", cache.length, " are there and ", rows,
                " more given; make it with a larger capacity");
  const auto keep = [&](const Tensor& kept, Tensor& kept_scale, const Tensor& given,
                        const ProjectedOperand& operand) {
    Tensor scale;
    if (operand.scale.present())
      scale = finish(operand.scale, args.k_n, scale_type(given.scalar_type()))
                  .expand(given.sizes().slice(0, 3));
    if (kept.scalar_type() == at::kChar) {
      const auto [numbers, factor] = quantized(given);
      put(kept, numbers, cache);
      scale = scale.defined() ? scale * factor : factor;
    } else {
      put(kept, given, cache);
    }
    put_scale(kept_scale, scale, cache);
  };
  keep(cache.k, cache.a_k, ready.k, args.k);
  keep(cache.v, cache.a_v, ready.v, args.v);
  cache.length += rows;
}

void Composed::remember(const ProjectedArgs& args, KeyCache& cache) const {
  append(args, prepared(args), cache);
}

AttentionResult Composed::attend_cached(const ProjectedArgs& args, const AttentionArgs& ready,
                                        KeyCache& cache) const {
  const int64_t before = cache.length;
  const bool grows = ready.k.defined();
  if (grows) append(args, ready, cache);
  if (grows && ready.q.size(2) <= kDecodeRows) {
    DecodeArgs decode;
    decode.q = ready.q;
    decode.k = cache.k;
    decode.v = cache.v;
    decode.lengths = args.cache_lengths;
    decode.block_table = cache.block_table;
    decode.a_q = ready.a_q;
    decode.q_recipe = ready.q_recipe;
    decode.a_k = cache.a_k;
    decode.a_v = cache.a_v;
    decode.bias = ready.bias;
    decode.key_start = ready.key_start;
    decode.causal = ready.causal;
    decode.window = ready.window;
    decode.scale = ready.scale;
    decode.cap = ready.cap;
    return ops::decode(decode);
  }
  const auto used = [&](const Tensor& kept) {
    if (!kept.defined()) return kept;
    return cache.block_table.defined() ? rows_of_blocks(kept, cache.block_table, cache.length)
                                       : kept.narrow(2, 0, cache.length);
  };
  AttentionArgs all = ready;
  all.a_k = used(cache.a_k);
  all.a_v = used(cache.a_v);
  // The many rows of a prompt pay for a copy of one layer in their own type.
  const auto widened = [&](const Tensor& kept, Tensor& scale) {
    const Tensor rows = used(kept).to(ready.q.scalar_type());
    if (kept.scalar_type() != at::kChar) return rows;
    return rows.mul(std::exchange(scale, {}).unsqueeze(3)).to(rows.scalar_type());
  };
  all.k = widened(cache.k, all.a_k);
  all.v = widened(cache.v, all.a_v);
  all.k_recipe = all.v_recipe = {};
  if (all.bias.defined()) all.bias = all.bias.narrow(3, 0, cache.length);
  if (grows) all.query_offset = before;
  return ops::attention(all);
}

}  // namespace tempera::ops
