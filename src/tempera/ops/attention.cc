#include "tempera/ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include "tempera/ops/backend.h"
#include "tempera/ops/schema.h"

namespace tempera::ops {
namespace {

// A recipe that names its own operand as the source reads the operand itself; kernels then need no
// second gradient.
void drop_own_source(Recipe& recipe, const at::Tensor& operand) {
  if (recipe.source.defined() && recipe.source.is_same(operand)) recipe.source.reset();
}

// The operators and their kernels take g itself.
void finish_slope(Recipe& recipe) {
  recipe.g = slope_of(recipe);
  recipe.g_is_logit = false;
}

// The operators return empty tensors for what was not asked for.
template <class Args>
AttentionResult result_of(const torch::jit::Stack& stack, const Args& args) {
  AttentionResult result;
  result.out = stack[0].toTensor();
  result.lse = stack[1].toTensor();
  if (result.lse.dim() == 1) result.lse.reset();
  if (args.want_max) result.max = stack[2].toTensor();
  if (args.want_entropy) result.entropy = stack[3].toTensor();
  if (args.want_head_max) result.head_max = stack[4].toTensor();
  return result;
}

}  // namespace

at::Tensor slope_of(const Recipe& recipe) {
  return recipe.g.defined() && recipe.g_is_logit ? recipe.g.sigmoid() : recipe.g;
}

AttentionResult attention(const AttentionArgs& args) {
  static const c10::OperatorHandle handle = find_operator("tempera::attention");
  TEMPERA_CHECK(args.q.defined() && args.k.defined() && args.v.defined(),
                "attention needs q, k and v, and one of them is undefined");
  AttentionArgs own = args;
  drop_own_source(own.q_recipe, own.q);
  drop_own_source(own.k_recipe, own.k);
  drop_own_source(own.v_recipe, own.v);
  // The composition has nothing to gain from the dispatcher, and passes a logit to the prologue's
  // kernel: a sigmoid of a few numbers costs a GPU as much as many rows.
  if (own.q.is_cuda() && composes(own)) {
    RECORD_FUNCTION("tempera::attention", {});
    return attention_composed(own);
  }
  for (Recipe* recipe : {&own.q_recipe, &own.k_recipe, &own.v_recipe}) finish_slope(*recipe);
  torch::jit::Stack stack;
  visit_attention(own, Push{stack});
  handle.callBoxed(stack);
  return result_of(stack, args);
}

AttentionResult decode(const DecodeArgs& args) {
  static const c10::OperatorHandle handle = find_operator("tempera::decode");
  TEMPERA_CHECK(args.q.defined() && args.k.defined() && args.v.defined() && args.lengths.defined(),
                "decode needs q, k, v and lengths, and one of them is undefined");
  DecodeArgs own = args;
  drop_own_source(own.q_recipe, own.q);
  finish_slope(own.q_recipe);
  // A step of generation calls this once a layer: the way through the dispatcher, with every
  // argument boxed twice, takes longer than the attention to a short cache.
  if (own.q.is_cpu() && !at::GradMode::is_enabled()) {
    RECORD_FUNCTION("tempera::decode", {});
    return decode_cpu(own);
  }
  torch::jit::Stack stack;
  visit_decode(own, Push{stack});
  handle.callBoxed(stack);
  return result_of(stack, args);
}

}  // namespace tempera::ops
