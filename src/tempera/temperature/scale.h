#pragma once

#include <torch/types.h>

#include "tempera/ops/attention.h"

namespace tempera {

// The scale of one operand's rows: the product of finished rows and a recipe for the kernel, each
// optional.
struct RowScale {
  torch::Tensor rows;  // broadcasts to (B, heads, T); float32, or float64 for float64 models
  ops::Recipe recipe;

  bool has_recipe() const { return recipe.w.defined() || recipe.g.defined() || recipe.c.defined(); }
  bool present() const { return rows.defined() || has_recipe(); }
};

// The type that scales are computed in for a model of this type: float64 for itself, else float32.
torch::ScalarType scale_type(torch::ScalarType model);

// log max(n, 1) in the given type: log 0 would make NaN of a row that nobody reads.
torch::Tensor log_count(const torch::Tensor& n, torch::ScalarType type);

// One number a head: value is (heads).
RowScale head_scale(const torch::Tensor& value, torch::ScalarType type);

// The values (B, heads, T) of a scale; rows with a recipe for keys that go into a cache need them.
// n: (B, T).
torch::Tensor finish(const RowScale& scale, const torch::Tensor& n, torch::ScalarType type);

// The product. It stays a recipe where one of two recipes is constant per head, else one of them
// becomes rows.
RowScale multiply(const RowScale& left, const RowScale& right, const torch::Tensor& n,
                  torch::ScalarType type);

}  // namespace tempera
