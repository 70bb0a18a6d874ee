#pragma once

#include <ATen/core/Tensor.h>

#include "tempera/ops/attention.h"

// Row scales by torch's own operators: what the kernels compute inside their passes.
namespace tempera::ops {

// The scale of one operand's rows: the product of finished rows and a recipe, each optional.
struct RowScale {
  at::Tensor rows;  // broadcasts to (B, heads, T); float32, or float64 for float64 models
  Recipe recipe;

  bool has_recipe() const { return recipe.w.defined() || recipe.g.defined() || recipe.c.defined(); }
  bool present() const { return rows.defined() || has_recipe(); }
};

// The type that scales are computed in for rows of this type: float64 for itself, else float32.
at::ScalarType scale_type(at::ScalarType rows);

// log max(n, 1) in the given type: log 0 would make NaN of a row that nobody reads.
at::Tensor log_count(const at::Tensor& n, at::ScalarType type);

// The factor of log n: g, or its sigmoid. Undefined: none.
at::Tensor slope_of(const Recipe& recipe);

// The recipe's value, broadcasts to (B, heads, T). operand: (B, heads, T, size), what w reads where
// the recipe names no source. log_n: (B, T), where there is a slope.
at::Tensor recipe_rows(const Recipe& recipe, const at::Tensor& operand, const at::Tensor& log_n,
                       at::ScalarType type);

// The values (B, heads, T) of a scale that is present; a recipe with w names its source. n: (B, T).
at::Tensor finish(const RowScale& scale, const at::Tensor& n, at::ScalarType type);

// A recipe that names its own operand as the source reads the operand itself; kernels then need no
// second gradient.
Recipe without_own_source(const Recipe& recipe, const at::Tensor& operand);

}  // namespace tempera::ops
