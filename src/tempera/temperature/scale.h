#pragma once

#include <torch/types.h>

#include "tempera/ops/scale.h"

namespace tempera {

using ops::finish;
using ops::log_count;
using ops::RowScale;
using ops::scale_type;

// One number a head: value is (heads).
RowScale head_scale(const torch::Tensor& value, torch::ScalarType type);

// The product. It stays a recipe where one of two recipes is constant per head, else one of them
// becomes rows.
RowScale multiply(const RowScale& left, const RowScale& right, const torch::Tensor& n,
                  torch::ScalarType type);

}  // namespace tempera
