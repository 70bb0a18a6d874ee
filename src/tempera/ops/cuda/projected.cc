// Where q, k and v go through the prologue: the joint projection of a layer, ready rows with their
// temperatures, and rows that only rotate.
#include "tempera/kernels/cuda/prologue.h"
#include "tempera/ops/cuda/backend.h"

namespace tempera::ops::cuda {
namespace {

using at::Tensor;

// Of the joint projection, or where it has rows of its own, of those.
PrologueOperand prologue_operand(const RowScale& scale, const Tensor& rows) {
  return {
      .heads = rows.size(1), .rows = scale.rows, .recipe = without_own_source(scale.recipe, rows)};
}

// Row t sees t + 1 keys, which the kernel knows by itself.
bool sees_as_under_causality(const AttentionArgs& mask) {
  return mask.causal && !mask.window && !mask.documents.defined() && !mask.key_start.defined() &&
         !mask.key_end.defined();
}

void add_operand(PrologueArgs& prologue, const ProjectedArgs& args, const ProjectedOperand& from,
                 const Tensor& n, bool is_value) {
  PrologueOperand operand = prologue_operand(from.scale, from.rows);
  operand.norm = !is_value && args.norm == HeadNorm::kEachHead;
  operand.rotate = !is_value && args.cos.defined();
  operand.gain = from.gain;
  const auto type = scale_type(args.q.projection.scalar_type());
  if (operand.recipe.source.defined()) {  // which the kernel does not read
    operand.rows = finish(from.scale, n, type);
    operand.recipe = {};
  }
  if (operand.recipe.g.defined() && !sees_as_under_causality(args.attention) &&
      !prologue.log_n.defined())
    prologue.log_n = log_count(n, type);
  prologue.operands.push_back(operand);
}

// In one pass over all of them. log_n: of all; undefined: log(t + 1).
void scale_in_one_pass(const std::vector<Tempered*>& parts, const Tensor& log_n) {
  if (parts.empty()) return;
  PrologueArgs args{.x = {}, .size = parts.front()->operand.size(3), .operands = {}};
  args.log_n = log_n;
  for (const Tempered* part : parts) {
    args.operands.push_back(prologue_operand(part->scale, part->operand));
    args.operands.back().x = part->operand;
  }
  const std::vector<Tensor> scaled = prologue(args);
  for (size_t i = 0; i < parts.size(); ++i) parts[i]->operand = scaled[i];
}

}  // namespace

bool Cuda::takes_prologue(const Tensor& x, int64_t size, int64_t pairs) const {
  return passes().takes_rows(x, size) && kernels::cuda::takes_prologue(size, pairs);
}

// The heads of q, k and v in turn, and nothing else.
bool Cuda::takes_projection(const ProjectedArgs& args) const {
  const Tensor& joint = args.q.projection;
  const int64_t q_heads = args.q.rows.size(1), kv_heads = args.k.rows.size(1);
  const int64_t size = args.q.rows.size(3);
  return args.k.projection.is_same(joint) && args.v.projection.is_same(joint) &&
         args.q.first == 0 && args.k.first == q_heads && args.v.first == q_heads + kv_heads &&
         joint.size(2) == (q_heads + 2 * kv_heads) * size && args.norm != HeadNorm::kAllHeads &&
         takes_prologue(joint, size, args.cos.defined() ? args.cos.size(1) : 0);
}

ProjectedResult Cuda::attend(const ProjectedArgs& args, KeyCache* cache) const {
  // The weights of pairs are made from rows without their temperatures.
  if (cache || args.pair_rows.defined() || !takes_projection(args))
    return Composed::attend(args, cache);
  PrologueArgs joint{.x = args.q.projection, .size = args.q.rows.size(3), .operands = {}};
  joint.epsilon = args.epsilon;
  joint.cos = args.cos;
  joint.sin = args.sin;
  joint.positions = args.positions;
  add_operand(joint, args, args.q, args.q_n, /*is_value=*/false);
  add_operand(joint, args, args.k, args.k_n, /*is_value=*/false);
  add_operand(joint, args, args.v, args.k_n, /*is_value=*/true);
  const std::vector<Tensor> rows = prologue(joint);
  AttentionArgs ready = args.attention;
  ready.q = rows[0];
  ready.k = rows[1];
  ready.v = rows[2];
  const AttentionResult found = ops::attention(ready);
  return {.out = found.out, .row_entropy = found.entropy, .row_max = found.max};
}

void Cuda::scale_rows(std::array<Tempered, 3>& parts, bool causal) const {
  std::vector<Tempered*> together;
  for (Tempered& part : parts) {
    const int64_t size = part.operand.size(3);
    if (!part.scale.present()) continue;
    if (part.scale.recipe.source.defined() || !takes_prologue(part.operand, size, 0))
      scale(part);
    else if (causal && size == parts[0].operand.size(3))
      together.push_back(&part);
    else
      scale_in_one_pass({&part}, part.scale.recipe.g.defined() ? part.log_n() : Tensor());
  }
  scale_in_one_pass(together, {});
}

Tensor Cuda::rotary(const Tensor& x, const Tensor& cos, const Tensor& sin,
                    const Tensor& positions) const {
  if (!takes_prologue(x, x.size(3), cos.size(1))) return Composed::rotary(x, cos, sin, positions);
  PrologueArgs args{.x = {}, .size = x.size(3), .operands = {}};
  args.operands.push_back({.heads = x.size(1), .x = x, .rotate = true});
  args.cos = cos;
  args.sin = sin;
  args.positions = positions;
  return prologue(args)[0];
}

}  // namespace tempera::ops::cuda
