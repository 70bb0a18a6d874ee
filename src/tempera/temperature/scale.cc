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

torch::Tensor finished(const ops::Recipe& recipe, const torch::Tensor& n, torch::ScalarType type) {
  return finish({.rows = {}, .recipe = recipe}, n, type);
}

}  // namespace

RowScale head_scale(const torch::Tensor& value, torch::ScalarType type) {
  RowScale scale;
  scale.recipe.c = value.to(type);
  return scale;
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
    const auto computed = finished(keep_right ? left.recipe : right.recipe, n, type);
    result.rows = result.rows.defined() ? result.rows * computed : computed;
    result.recipe = keep_right ? right.recipe : left.recipe;
  }
  return result;
}

}  // namespace tempera
