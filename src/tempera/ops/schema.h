#pragma once

#include <ATen/core/stack.h>

#include <array>
#include <string>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/ops/attention.h"

// The operators' arguments, each declared once: the schema, the way onto the dispatcher's stack and
// the way back are all made from the visitors below, which name every argument in the order of the
// schema.
namespace tempera::ops {

inline constexpr size_t kDifferentiable = 24;

// Scales of queries, keys and values, and the recipe for those of queries.
template <class Args, class Visit>
void visit_scales(Args& args, Visit&& visit) {
  visit("Tensor? a_q=None", args.a_q);
  visit("Tensor? a_k=None", args.a_k);
  visit("Tensor? a_v=None", args.a_v);
  visit("Tensor? q_source=None", args.q_recipe.source);
  visit("Tensor? q_w=None", args.q_recipe.w);
  visit("Tensor? q_g=None", args.q_recipe.g);
  visit("Tensor? q_c=None", args.q_recipe.c);
  visit("Tensor? q_s=None", args.q_recipe.s);
}

// What is added to the logits, or multiplies them at the end.
template <class Args, class Visit>
void visit_logits(Args& args, Visit&& visit) {
  visit("Tensor? bias=None", args.bias);
  visit("Tensor? sinks=None", args.sinks);
  visit("Tensor? post=None", args.post);
}

// The tensors that can have a gradient.
template <class Args, class Visit>
void visit_differentiable(Args& args, Visit&& visit) {
  visit("Tensor q", args.q);
  visit("Tensor k", args.k);
  visit("Tensor v, *", args.v);
  visit_scales(args, visit);
  visit("Tensor? k_source=None", args.k_recipe.source);
  visit("Tensor? k_w=None", args.k_recipe.w);
  visit("Tensor? k_g=None", args.k_recipe.g);
  visit("Tensor? k_c=None", args.k_recipe.c);
  visit("Tensor? k_s=None", args.k_recipe.s);
  visit("Tensor? v_source=None", args.v_recipe.source);
  visit("Tensor? v_w=None", args.v_recipe.w);
  visit("Tensor? v_g=None", args.v_recipe.g);
  visit("Tensor? v_c=None", args.v_recipe.c);
  visit("Tensor? v_s=None", args.v_recipe.s);
  visit_logits(args, visit);
}

template <class Args, class Visit>
void visit_indices(Args& args, Visit&& visit) {
  visit("Tensor? key_counts=None", args.key_counts);
  visit("Tensor? documents=None", args.documents);
  visit("Tensor? key_documents=None", args.key_documents);
  visit("Tensor? key_start=None", args.key_start);
  visit("Tensor? key_end=None", args.key_end);
}

template <class Args, class Visit>
void visit_options(Args& args, Visit&& visit) {
  visit("bool causal=False", args.causal);
  visit("int? window=None", args.window);
  visit("int? query_offset=None", args.query_offset);
  visit("float? scale=None", args.scale);
  visit("float cap=0", args.cap);
  visit("float dropout=0", args.dropout);
  visit("int seed=0", args.seed);
}

template <class Args, class Visit>
void visit_wants(Args& args, Visit&& visit) {
  visit("bool want_max=False", args.want_max);
  visit("bool want_entropy=False", args.want_entropy);
  visit("bool want_head_max=False", args.want_head_max);
}

// attention_backward has the arguments of attention, without the wants.
template <class Args, class Visit>
void visit_inputs(Args& args, Visit&& visit) {
  visit_differentiable(args, visit);
  visit_indices(args, visit);
  visit_options(args, visit);
}

template <class Args, class Visit>
void visit_attention(Args& args, Visit&& visit) {
  visit_inputs(args, visit);
  visit_wants(args, visit);
}

template <class Args, class Visit>
void visit_decode(Args& args, Visit&& visit) {
  visit("Tensor q", args.q);
  visit("Tensor k", args.k);
  visit("Tensor v", args.v);
  visit("Tensor lengths, *", args.lengths);
  visit("Tensor? block_table=None", args.block_table);
  visit_scales(args, visit);
  visit_logits(args, visit);
  visit("Tensor? key_start=None", args.key_start);
  visit("bool causal=True", args.causal);
  visit("int? window=None", args.window);
  visit("float? scale=None", args.scale);
  visit("float cap=0", args.cap);
  visit_wants(args, visit);
}

// Adds every visited argument's declaration to a schema.
struct Declare {
  std::string& text;

  template <class Value>
  void operator()(const char* declaration, const Value&) const {
    if (text.back() != '(') text += ", ";
    text += declaration;
  }
};

struct Push {
  torch::jit::Stack& stack;

  void operator()(const char*, const at::Tensor& tensor) const {
    stack.emplace_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
  }
  template <class Value>
  void operator()(const char*, const Value& value) const {
    stack.emplace_back(value);
  }
};

// Reads arguments from the stack in order, beginning at `next`.
struct Read {
  const torch::jit::Stack& stack;
  size_t& next;

  void operator()(const char*, at::Tensor& tensor) const {
    const c10::IValue& value = stack[next++];
    tensor = value.isNone() ? at::Tensor() : value.toTensor();
  }
  template <class Value>
  void operator()(const char*, Value& value) const {
    value = stack[next++].to<Value>();
  }
};

struct BackwardArgs {
  at::Tensor d_out, d_lse;  // undefined: 0
  at::Tensor out, lse;      // of the forward pass
  AttentionArgs inputs;
  std::array<bool, kDifferentiable> wanted{};  // in the order of visit_differentiable
};

inline std::array<at::Tensor, kDifferentiable> differentiable(const AttentionArgs& args) {
  std::array<at::Tensor, kDifferentiable> tensors;
  size_t next = 0;
  visit_differentiable(args,
                       [&](const char*, const at::Tensor& tensor) { tensors[next++] = tensor; });
  return tensors;
}

}  // namespace tempera::ops
