#include "tempera/ops/library.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "tempera/ops/autograd.h"
#include "tempera/ops/backend.h"
#include "tempera/ops/meta.h"
#include "tempera/ops/scale.h"

// The operators are registered as boxed kernels: their arguments are many, and are written down in
// schema.h alone.
namespace tempera::ops {
namespace {

using torch::jit::Stack;

// text: the name, an opening parenthesis and the arguments that no visitor names.
std::string schema_of(std::string text, const auto& declare) {
  declare(Declare{text});
  return text;
}

std::string attention_schema() {
  const AttentionArgs args;
  return schema_of("attention(", [&](const Declare& add) { visit_attention(args, add); }) +
         ") -> (Tensor out, Tensor lse, Tensor max, Tensor entropy, Tensor head_max)";
}

std::string attention_backward_schema() {
  const AttentionArgs args;
  return schema_of("attention_backward(Tensor? d_out, Tensor? d_lse, Tensor out, Tensor lse",
                   [&](const Declare& add) { visit_inputs(args, add); }) +
         concat(", bool[", kDifferentiable, "] wanted) -> Tensor[]");
}

std::string decode_schema() {
  const DecodeArgs args;
  return schema_of("decode(", [&](const Declare& add) { visit_decode(args, add); }) +
         ") -> (Tensor out, Tensor lse, Tensor max, Tensor entropy, Tensor head_max)";
}

// Takes the last `count` values from the stack.
Stack take(Stack* stack, size_t count) {
  const auto first = stack->end() - static_cast<ptrdiff_t>(count);
  Stack taken(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
  stack->erase(first, stack->end());
  return taken;
}

AttentionArgs attention_args(const Stack& values) {
  AttentionArgs args;
  size_t next = 0;
  visit_attention(args, Read{values, next});
  return args;
}

DecodeArgs decode_args(const Stack& values) {
  DecodeArgs args;
  size_t next = 0;
  visit_decode(args, Read{values, next});
  return args;
}

BackwardArgs backward_args(const Stack& values) {
  BackwardArgs args;
  size_t next = 0;
  const Read read{values, next};
  for (at::Tensor* tensor : {&args.d_out, &args.d_lse, &args.out, &args.lse}) read("", *tensor);
  visit_inputs(args.inputs, read);
  const auto wanted = values[next].toBoolList();
  TEMPERA_CHECK(wanted.size() == kDifferentiable, "wanted: ", wanted.size(), " flags given, ",
                kDifferentiable, " expected");
  std::copy(wanted.begin(), wanted.end(), args.wanted.begin());
  return args;
}

// An operator returns a tensor in every place: an empty one stands for what was not asked for.
at::Tensor or_empty(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.defined()) return tensor;
  return at::empty({0}, like.options().dtype(scale_type(like.scalar_type())));
}

void push(Stack* stack, const AttentionResult& result) {
  for (const at::Tensor& tensor :
       {result.out, result.lse, result.max, result.entropy, result.head_max})
    stack->emplace_back(or_empty(tensor, result.out));
}

template <AttentionResult (*kFunction)(const AttentionArgs&)>
void boxed_attention(const c10::OperatorHandle& handle, Stack* stack) {
  push(stack, kFunction(attention_args(take(stack, handle.schema().arguments().size()))));
}

AttentionResult attention_below(const AttentionArgs& args) {
  return backend_of(args.q).attention_forward(args);
}

std::vector<at::Tensor> backward_below(const BackwardArgs& args) {
  return backend_of(args.inputs.q).attention_backward(args);
}

AttentionResult decode_below(const DecodeArgs& args) { return backend_of(args.q).decode(args); }

template <std::vector<at::Tensor> (*kFunction)(const BackwardArgs&)>
void boxed_backward(const c10::OperatorHandle& handle, Stack* stack) {
  const BackwardArgs args = backward_args(take(stack, handle.schema().arguments().size()));
  std::vector<at::Tensor> gradients = kFunction(args);
  for (at::Tensor& gradient : gradients) gradient = or_empty(gradient, args.inputs.q);
  stack->emplace_back(std::move(gradients));
}

template <AttentionResult (*kFunction)(const DecodeArgs&)>
void boxed_decode(const c10::OperatorHandle& handle, Stack* stack) {
  push(stack, kFunction(decode_args(take(stack, handle.schema().arguments().size()))));
}

void decode_without_gradients(const c10::OperatorHandle& handle, Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  refuse_gradients(decode_args({stack->end() - static_cast<ptrdiff_t>(count), stack->end()}));
  const at::AutoDispatchBelowADInplaceOrView guard;
  handle.callBoxed(stack);
}

template <auto kFunction>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kFunction>();
}

}  // namespace

c10::OperatorHandle find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

TORCH_LIBRARY(tempera, library) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  library.def(attention_schema().c_str(), tags);
  library.def(attention_backward_schema().c_str(), tags);
  library.def(decode_schema().c_str(), tags);
}

TORCH_LIBRARY_IMPL(tempera, CPU, library) {
  library.impl("attention", boxed<&boxed_attention<&attention_below>>());
  library.impl("attention_backward", boxed<&boxed_backward<&backward_below>>());
  library.impl("decode", boxed<&boxed_decode<&decode_below>>());
}

TORCH_LIBRARY_IMPL(tempera, CUDA, library) {
  library.impl("attention", boxed<&boxed_attention<&attention_below>>());
  library.impl("attention_backward", boxed<&boxed_backward<&backward_below>>());
  library.impl("decode", boxed<&boxed_decode<&decode_below>>());
}

TORCH_LIBRARY_IMPL(tempera, Meta, library) {
  library.impl("attention", boxed<&boxed_attention<&attention_meta>>());
  library.impl("attention_backward", boxed<&boxed_backward<&empty_gradients>>());
  library.impl("decode", boxed<&boxed_decode<&decode_meta>>());
}

TORCH_LIBRARY_IMPL(tempera, Autograd, library) {
  library.impl("attention", boxed<&boxed_attention<&attention_traced>>());
  library.impl("attention_backward", torch::autograd::autogradNotImplementedFallback());
  library.impl("decode", boxed<&decode_without_gradients>());
}

}  // namespace tempera::ops
