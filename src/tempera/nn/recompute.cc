#include "tempera/nn/recompute.h"

#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using PassFunction = std::function<torch::Tensor(const variable_list&)>;

// Lets autograd's context carry a function.
struct Held : torch::CustomClassHolder {
  explicit Held(PassFunction function) : pass(std::move(function)) {}
  PassFunction pass;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  // The parameters are arguments so that autograd knows they matter.
  static torch::Tensor forward(AutogradContext* context, const PassFunction& pass,
                               at::TensorList inputs, at::TensorList parameters) {
    context->saved_data["pass"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(pass));
    context->saved_data["inputs"] = static_cast<int64_t>(inputs.size());
    variable_list saved = inputs.vec();
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    return pass(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["pass"].toCapsule();
    const auto input_count = static_cast<size_t>(context->saved_data["inputs"].toInt());
    variable_list variables = context->get_saved_variables();
    variable_list results(1 + variables.size());  // the function stands in front
    variable_list wanted;
    std::vector<size_t> places;
    for (size_t i = 0; i < variables.size(); ++i) {
      const bool needed = variables[i].requires_grad();
      if (i < input_count) variables[i] = variables[i].detach().requires_grad_(needed);
      if (!needed) continue;
      wanted.push_back(variables[i]);
      places.push_back(i + 1);
    }
    torch::Tensor out;
    {
      const torch::AutoGradMode enable(true);
      variables.resize(input_count);
      out = static_cast<Held*>(held.get())->pass(variables);
    }
    const auto found = torch::autograd::grad({out}, wanted, {gradients[0]}, std::nullopt,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < places.size(); ++i) results[places[i]] = found[i];
    return results;
  }
};

}  // namespace

torch::Tensor recomputed(const PassFunction& pass, const variable_list& inputs,
                         const variable_list& parameters) {
  if (!torch::GradMode::is_enabled()) return pass(inputs);
  // As lists: autograd does not look into vectors.
  return Recompute::apply(pass, at::TensorList(inputs), at::TensorList(parameters));
}

}  // namespace tempera::nn
