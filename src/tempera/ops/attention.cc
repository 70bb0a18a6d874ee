#include "tempera/ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "tempera/ops/autograd.h"
#include "tempera/ops/backend.h"
#include "tempera/ops/library.h"
#include "tempera/ops/observe.h"
#include "tempera/ops/scale.h"

namespace tempera::ops {
namespace {

// What C++ holds lies on a device: the way through the dispatcher, with every argument boxed twice,
// takes longer than attention to a short cache. Tracers have to see the operator, and tensors
// without storage are the dispatcher's.
bool is_direct(const at::Tensor& q) {
  return (q.is_cpu() || q.is_cuda()) && !q.unsafeGetTensorImpl()->is_python_dispatch();
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

AttentionResult unobserved(const AttentionArgs& args) {
  static const c10::OperatorHandle handle = find_operator("tempera::attention");
  TEMPERA_CHECK(args.q.defined() && args.k.defined() && args.v.defined(),
                "attention needs q, k and v, and one of them is undefined");
  AttentionArgs own = args;
  own.q_recipe = without_own_source(args.q_recipe, args.q);
  own.k_recipe = without_own_source(args.k_recipe, args.k);
  own.v_recipe = without_own_source(args.v_recipe, args.v);
  if (is_direct(own.q)) {
    RECORD_FUNCTION("tempera::attention", {});
    return backend_of(own.q).attention(own);
  }
  finish_slopes(own);
  torch::jit::Stack stack;
  visit_attention(own, Push{stack});
  handle.callBoxed(stack);
  return result_of(stack, args);
}

}  // namespace

AttentionResult attention(const AttentionArgs& args) {
  AttentionObserver* const observer = attention_observer();
  if (!observer) return unobserved(args);
  AttentionArgs seen = args;
  observer->before(seen);
  AttentionResult result = unobserved(seen);
  observer->after(seen, result);
  return result;
}

AttentionResult decode(const DecodeArgs& args) {
  static const c10::OperatorHandle handle = find_operator("tempera::decode");
  TEMPERA_CHECK(args.q.defined() && args.k.defined() && args.v.defined() && args.lengths.defined(),
                "decode needs q, k, v and lengths, and one of them is undefined");
  DecodeArgs own = args;
  own.q_recipe = without_own_source(args.q_recipe, args.q);
  own.q_recipe.g = slope_of(own.q_recipe);
  own.q_recipe.g_is_logit = false;
  if (is_direct(own.q)) {
    refuse_gradients(own);
    RECORD_FUNCTION("tempera::decode", {});
    return backend_of(own.q).decode(own);
  }
  torch::jit::Stack stack;
  visit_decode(own, Push{stack});
  handle.callBoxed(stack);
  return result_of(stack, args);
}

}  // namespace tempera::ops
