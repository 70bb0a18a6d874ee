#pragma once

#include <vector>

#include "tempera/ops/checks.h"
#include "tempera/ops/schema.h"

namespace tempera::ops {

// Uninitialised results of the right shapes, dtypes and strides: all that there is on Meta, and
// what kernels fill elsewhere.
template <class Args>
AttentionResult empty_result(const Args& args, const Dims& dims);
// Nobody sees a key.
void fill_empty(const AttentionResult& result);
std::vector<at::Tensor> empty_gradients(const BackwardArgs& args);

AttentionResult attention_meta(const AttentionArgs& args);
AttentionResult decode_meta(const DecodeArgs& args);

}  // namespace tempera::ops
