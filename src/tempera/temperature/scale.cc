#include "tempera/temperature/scale.h"

#include "tempera/ops/torch.h"

namespace tempera {
namespace {

bool is_constant(const ops::Recipe& recipe) { return !recipe.w.defined() && !recipe.g.defined(); }

// (heads) of a constant recipe.
torch::Tensor constant_value(const ops::Recipe& recipe) {
  return recipe.s.defined() ? recipe.s * recipe.c : recipe.c;
}

ops::Recipe scaled(ops::Recipe recipe, const torch::Tensor& factor) {
  recipe.s = recipe.s.defined() ? recipe.s * factor : factor;
  return recipe;
}

torch::Tensor recipe_rows(const ops::Recipe& recipe, const torch::Tensor& n,
                          torch::ScalarType type) {
  const auto per_head = [&](const torch::Tensor& value) { return value.to(type).view({1, -1, 1}); };
  torch::Tensor sum;
  const auto add = [&](const torch::Tensor& term) { sum = sum.defined() ? sum + term : term; };
  if (recipe.c.defined()) add(per_head(recipe.c));
  if (recipe.w.defined()) {
    const auto active = torch::gelu(recipe.source.to(type));
    add(torch::matmul(active, recipe.w.to(type).unsqueeze(-1)).squeeze(-1).tanh());
  }
  if (recipe.g.defined()) add(per_head(slope_of(recipe)) * log_count(n, type).unsqueeze(1));
  return recipe.s.defined() ? per_head(recipe.s) * sum : sum;
}

}  // namespace

torch::ScalarType scale_type(torch::ScalarType model) {
  return model == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Tensor log_count(const torch::Tensor& n, torch::ScalarType type) {
  return n.clamp_min(1).to(type).log();
}

RowScale head_scale(const torch::Tensor& value, torch::ScalarType type) {
  RowScale scale;
  scale.recipe.c = value.to(type);
  return scale;
}

torch::Tensor finish(const RowScale& scale, const torch::Tensor& n, torch::ScalarType type) {
  torch::Tensor rows = scale.rows;
  if (scale.has_recipe()) {
    const auto computed = recipe_rows(scale.recipe, n, type);
    rows = rows.defined() ? rows * computed : computed;
  }
  return rows.expand({n.size(0), -1, n.size(1)});
}

RowScale multiply(const RowScale& left, const RowScale& right, const torch::Tensor& n,
                  torch::ScalarType type) {
  if (!left.present()) return right;
  if (!right.present()) return left;
  RowScale result;
  result.rows = left.rows.defined() && right.rows.defined() ? left.rows * right.rows
                : left.rows.defined()                       ? left.rows
                                                            : right.rows;
  if (!left.has_recipe() || !right.has_recipe()) {
    result.recipe = left.has_recipe() ? left.recipe : right.recipe;
  } else if (is_constant(left.recipe)) {
    result.recipe = scaled(right.recipe, constant_value(left.recipe));
  } else if (is_constant(right.recipe)) {
    result.recipe = scaled(left.recipe, constant_value(right.recipe));
  } else {
    // What reads the rows of the operand stays, for the kernel to compute on its way.
    const bool keep_right = right.recipe.w.defined() && !left.recipe.w.defined();
    const auto computed = recipe_rows(keep_right ? left.recipe : right.recipe, n, type);
    result.rows = result.rows.defined() ? result.rows * computed : computed;
    result.recipe = keep_right ? right.recipe : left.recipe;
  }
  return result;
}

}  // namespace tempera
