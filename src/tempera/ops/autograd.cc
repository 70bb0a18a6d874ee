#include "tempera/ops/autograd.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "tempera/ops/backend.h"
#include "tempera/ops/library.h"
#include "tempera/ops/scale.h"

namespace tempera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Both ways to the kernels give out, lse, max, entropy and head_max, with an empty tensor for what
// was not asked for.
struct ThroughDispatcher {
  static variable_list forward(const AttentionArgs& args) {
    static const c10::OperatorHandle handle = find_operator("tempera::attention");
    torch::jit::Stack stack;
    visit_attention(args, Push{stack});
    handle.callBoxed(stack);
    variable_list outputs;
    for (const c10::IValue& output : stack) outputs.push_back(output.toTensor());
    return outputs;
  }

  // d_out, d_lse, out and lse stand in front of the inputs.
  static variable_list backward(const BackwardArgs& args) {
    static const c10::OperatorHandle handle = find_operator("tempera::attention_backward");
    torch::jit::Stack stack;
    for (const at::Tensor* tensor : {&args.d_out, &args.d_lse, &args.out, &args.lse})
      Push{stack}("", *tensor);
    visit_inputs(args.inputs, Push{stack});
    stack.emplace_back(c10::List<bool>(args.wanted));
    handle.callBoxed(stack);
    return stack[0].toTensorVector();
  }
};

struct Direct {
  static variable_list forward(const AttentionArgs& args) {
    const AttentionResult result = backend_of(args.q).attention_forward(args);
    const at::Tensor none = at::empty({0}, result.lse.options());
    const auto given = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor : none; };
    return {result.out, result.lse, given(result.max), given(result.entropy),
            given(result.head_max)};
  }

  static variable_list backward(const BackwardArgs& args) {
    // A gradient of the gradient: the dispatcher says that there is none.
    if (at::GradMode::is_enabled()) return ThroughDispatcher::backward(args);
    RECORD_FUNCTION("tempera::attention_backward", {});
    return backend_of(args.inputs.q).attention_backward(args);
  }
};

template <class Way>
class AttentionFunction : public torch::autograd::Function<AttentionFunction<Way>> {
 public:
  // The tensors repeat those of args: autograd looks for its variables among the arguments.
  template <class... Tensors>
  static variable_list forward(AutogradContext* context, const AttentionArgs& args,
                               const Tensors&... tensors) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    variable_list outputs = Way::forward(args);
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
    BackwardArgs args = restored(context, saved);
    args.d_out = gradients[0];
    args.d_lse = gradients[1];
    bool any = false;
    size_t edge = 0;  // absent tensors have none
    for (size_t i = 0; i < kDifferentiable; ++i) {
      args.wanted[i] = saved[2 + i].defined() && context->needs_input_grad(edge++);
      any |= args.wanted[i];
    }
    variable_list results(1 + kDifferentiable);  // the first is that of the struct
    if (!any || (!args.d_out.defined() && !args.d_lse.defined())) return results;
    const variable_list computed = Way::backward(args);
    for (size_t i = 0; i < kDifferentiable; ++i)
      if (args.wanted[i]) results[1 + i] = computed[i];
    return results;
  }

 private:
  static BackwardArgs restored(AutogradContext* context, const variable_list& saved) {
    BackwardArgs args;
    args.out = saved[0];
    args.lse = saved[1];
    size_t next = 2;
    const auto restore = [&](const char*, at::Tensor& tensor) { tensor = saved[next++]; };
    visit_differentiable(args.inputs, restore);
    visit_indices(args.inputs, restore);
    const torch::jit::Stack options = context->saved_data["options"].toTupleRef().elements().vec();
    size_t position = 0;
    visit_options(args.inputs, Read{options, position});
    return args;
  }
};

template <class Way, size_t... I>
AttentionResult apply(const AttentionArgs& args, std::index_sequence<I...>) {
  const auto tensors = differentiable(args);
  const auto present = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  const variable_list outputs = AttentionFunction<Way>::apply(args, present(tensors[I])...);
  const auto wanted = [&](bool want, size_t i) { return want ? outputs[i] : at::Tensor(); };
  return {outputs[0], outputs[1], wanted(args.want_max, 2), wanted(args.want_entropy, 3),
          wanted(args.want_head_max, 4)};
}

}  // namespace

AttentionResult attention_autograd(const AttentionArgs& args) {
  const auto inputs = differentiable(args);
  const bool needed = at::GradMode::is_enabled() &&
                      std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
                        return input.defined() && input.requires_grad();
                      });
  if (!needed) return backend_of(args.q).attention_forward(args);
  return apply<Direct>(args, std::make_index_sequence<kDifferentiable>());
}

AttentionResult attention_traced(const AttentionArgs& args) {
  const Backend& backend = backend_of(args.q);
  if (!args.q.is_meta() && !backend.has_kernel(args)) return backend.attention(args);
  return apply<ThroughDispatcher>(args, std::make_index_sequence<kDifferentiable>());
}

void finish_slopes(AttentionArgs& args) {
  for (Recipe* recipe : {&args.q_recipe, &args.k_recipe, &args.v_recipe}) {
    recipe->g = slope_of(*recipe);
    recipe->g_is_logit = false;
  }
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
