#include "tempera/ops/autograd.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "tempera/ops/backend.h"
#include "tempera/ops/schema.h"

namespace tempera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// d_out, d_lse, out and lse stand in front of the inputs.
variable_list call_backward(const BackwardArgs& args) {
  static const c10::OperatorHandle handle = find_operator("tempera::attention_backward");
  torch::jit::Stack stack;
  for (const at::Tensor* tensor : {&args.d_out, &args.d_lse, &args.out, &args.lse})
    Push{stack}("", *tensor);
  visit_inputs(args.inputs, Push{stack});
  stack.emplace_back(c10::List<bool>(args.wanted));
  handle.callBoxed(stack);
  variable_list gradients = stack[0].toTensorVector();
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!args.wanted[i]) gradients[i].reset();
  return gradients;
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  // The tensors repeat those of args: autograd looks for its variables among the arguments.
  template <class... Tensors>
  static variable_list forward(AutogradContext* context, const AttentionArgs& args,
                               const Tensors&... tensors) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    static const c10::OperatorHandle handle = find_operator("tempera::attention");
    torch::jit::Stack stack;
    visit_attention(args, Push{stack});
    handle.callBoxed(stack);
    variable_list outputs;
    for (const c10::IValue& output : stack) outputs.push_back(output.toTensor());

    variable_list saved = {outputs[0], outputs[1], tensors.value_or(at::Tensor())...};
    visit_indices(args, [&](const char*, const at::Tensor& tensor) { saved.push_back(tensor); });
    context->save_for_backward(std::move(saved));
    torch::jit::Stack options;
    visit_options(args, Push{options});
    context->saved_data["options"] = c10::ivalue::Tuple::create(std::move(options));
    context->mark_non_differentiable({outputs[2], outputs[3], outputs[4]});
    context->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    BackwardArgs args;
    args.d_out = gradients[0];
    args.d_lse = gradients[1];
    args.out = saved[0];
    args.lse = saved[1];
    size_t next = 2;
    const auto restore = [&](const char*, at::Tensor& tensor) { tensor = saved[next++]; };
    visit_differentiable(args.inputs, restore);
    visit_indices(args.inputs, restore);
    const torch::jit::Stack options = context->saved_data["options"].toTupleRef().elements().vec();
    size_t position = 0;
    visit_options(args.inputs, Read{options, position});
    bool any = false;
    size_t edge = 0;  // absent tensors have none
    for (size_t i = 0; i < kDifferentiable; ++i) {
      args.wanted[i] = saved[2 + i].defined() && context->needs_input_grad(edge++);
      any |= args.wanted[i];
    }
    variable_list results(1 + kDifferentiable);  // the first is that of the struct
    if (!any || (!args.d_out.defined() && !args.d_lse.defined())) return results;
    variable_list computed = call_backward(args);
    std::move(computed.begin(), computed.end(), results.begin() + 1);
    return results;
  }
};

template <size_t... I>
variable_list apply(const AttentionArgs& args, std::index_sequence<I...>) {
  const auto tensors = differentiable(args);
  const auto present = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  return AttentionFunction::apply(args, present(tensors[I])...);
}

}  // namespace

AttentionResult attention_autograd(const AttentionArgs& args) {
  const variable_list outputs = apply(args, std::make_index_sequence<kDifferentiable>());
  return {outputs[0], outputs[1], outputs[2], outputs[3], outputs[4]};
}

void refuse_gradients(const DecodeArgs& args) {
  if (!at::GradMode::is_enabled()) return;
  const auto refuse = []<class Value>(const char* declaration, const Value& value) {
    if constexpr (std::is_same_v<Value, at::Tensor>)
      TEMPERA_CHECK(!value.defined() || !value.requires_grad(), "decode has no gradients, and '",
                    declaration, "' requires one; call it under no_grad, or use attention");
  };
  visit_decode(args, refuse);
}

bool wants_gradient(std::initializer_list<at::Tensor> inputs) {
  return at::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(),
                     [](const at::Tensor& x) { return x.defined() && x.requires_grad(); });
}

}  // namespace tempera::ops
