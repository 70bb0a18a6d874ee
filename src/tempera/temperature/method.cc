#include "tempera/temperature/method.h"

#include "tempera/ops/torch.h"

namespace tempera {

void Method::set_token_counts(const torch::Tensor& /*counts*/) {}

int64_t Method::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

torch::Tensor Method::add_parameter(const std::string& name, const torch::Tensor& start,
                                    double rate) {
  rates_[name] = rate;
  return register_parameter(name, start);
}

RowScales ConstantMethod::forward(const LayerInputs& inputs) {
  const auto type = scale_type(inputs.q.scalar_type());
  const HeadScales heads = head_scales(inputs.q.options().dtype(type));
  RowScales scales;
  if (heads.q.defined()) scales.q = head_scale(heads.q, type);
  if (heads.k.defined()) scales.k = head_scale(heads.k, type);
  if (heads.v.defined()) scales.v = head_scale(heads.v, type);
  return scales;
}

std::optional<HeadScales> ConstantMethod::constant() const {
  return head_scales(torch::dtype(torch::kFloat64));
}

void apply(const RowScales& scales, ops::AttentionArgs& args) {
  const auto pick = [](const RowScale& scale, const torch::Tensor& operand, torch::Tensor& rows,
                       ops::Recipe& recipe) {
    rows = scale.rows;
    recipe = scale.recipe;
    // The kernel saves a pass over memory when a row to scale is also the row that w reads.
    if (recipe.source.is_same(operand)) recipe.source.reset();
  };
  pick(scales.q, args.q, args.a_q, args.q_recipe);
  pick(scales.k, args.k, args.a_k, args.k_recipe);
  pick(scales.v, args.v, args.a_v, args.v_recipe);
}

}  // namespace tempera
