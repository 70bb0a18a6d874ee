#pragma once

#include <initializer_list>

#include "tempera/ops/attention.h"

namespace tempera::ops {

// Attention by the kernels of its backend, as a differentiable function.
AttentionResult attention_autograd(const AttentionArgs& args);
// What the dispatcher calls for tensors with gradients. Kernels are reached through the dispatcher
// again, below autograd, and so is the backward pass, so that tracers record tempera::attention and
// tempera::attention_backward.
AttentionResult attention_traced(const AttentionArgs& args);

// g in place of its logit: the operators and their kernels take g itself.
void finish_slopes(AttentionArgs& args);

// Throws tempera::Error where a gradient would be needed.
void refuse_gradients(const DecodeArgs& args);

// Whether a result of these tensors is part of a graph. Where it is not, no node is made: that
// takes longer than a pass over one row.
bool wants_gradient(std::initializer_list<at::Tensor> inputs);

}  // namespace tempera::ops
