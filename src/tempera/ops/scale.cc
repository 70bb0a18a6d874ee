#include "tempera/ops/scale.h"

#include <ATen/ATen.h>

#include "tempera/ops/linear.h"

namespace tempera::ops {

at::ScalarType scale_type(at::ScalarType rows) {
  return rows == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor log_count(const at::Tensor& n, at::ScalarType type) {
  return n.clamp_min(1).to(type).log();
}

at::Tensor slope_of(const Recipe& recipe) {
  return recipe.g.defined() && recipe.g_is_logit ? recipe.g.sigmoid() : recipe.g;
}

at::Tensor recipe_rows(const Recipe& recipe, const at::Tensor& operand, const at::Tensor& log_n,
                       at::ScalarType type) {
  const auto head = [&](const at::Tensor& value) { return value.to(type).view({1, -1, 1}); };
  at::Tensor sum;
  const auto add = [&](const at::Tensor& term) { sum = sum.defined() ? sum + term : term; };
  if (recipe.c.defined()) add(head(recipe.c));
  if (recipe.w.defined()) {
    const at::Tensor& source = recipe.source.defined() ? recipe.source : operand;
    const at::Tensor w = recipe.w.to(type).unsqueeze(-1);
    add(by_sequence(source, [&](const at::Tensor& rows) {
      return at::matmul(at::gelu(rows.to(type)), w).squeeze(-1).tanh();
    }));
  }
  if (recipe.g.defined()) add(head(slope_of(recipe)) * log_n.unsqueeze(1));
  return recipe.s.defined() ? head(recipe.s) * sum : sum;
}

at::Tensor finish(const RowScale& scale, const at::Tensor& n, at::ScalarType type) {
  at::Tensor rows = scale.rows;
  if (scale.has_recipe()) {
    const at::Tensor log_n = scale.recipe.g.defined() ? log_count(n, type) : at::Tensor();
    const at::Tensor computed = recipe_rows(scale.recipe, {}, log_n, type);
    rows = rows.defined() ? rows * computed : computed;
  }
  return rows.expand({n.size(0), -1, n.size(1)});
}

Recipe without_own_source(const Recipe& recipe, const at::Tensor& operand) {
  Recipe own = recipe;
  if (own.source.defined() && own.source.is_same(operand)) own.source.reset();
  return own;
}

}  // namespace tempera::ops
