#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <vector>

#include "tempera/ops/attention.h"
#include "tempera/ops/checks.h"
#include "tempera/ops/schema.h"

// What the dispatcher calls below autograd, one function a device and operator.
namespace tempera::ops {

// Defined beside the registrations, so that whatever calls an operator also links them, even out of
// an archive.
c10::OperatorHandle find_operator(const char* name);

struct BackwardArgs {
  at::Tensor d_out, d_lse;  // undefined: 0
  at::Tensor out, lse;      // of the forward pass
  AttentionArgs inputs;
  std::array<bool, kDifferentiable> wanted{};  // in the order of visit_differentiable
};

AttentionResult attention_cpu(const AttentionArgs& args);
AttentionResult attention_meta(const AttentionArgs& args);
// Written with torch's own operators (any device, differentiable): the scales are multiplied to q,
// k and v in front of at::scaled_dot_product_attention. Throws tempera::Error for what that cannot
// do. Gives `out`, and with want_entropy lse and entropy.
AttentionResult attention_composed(const AttentionArgs& args);
AttentionResult decode_composed(const DecodeArgs& args);
// Whether libtorch's fused attention can do it: every key or plain causality, nothing but scales on
// the logits, and `out` alone wanted.
bool is_plain(const AttentionArgs& args);
// Whether attention on a GPU is composed: our own kernels are for what libtorch's cannot do.
bool composes(const AttentionArgs& args);

// One gradient a differentiable input; undefined where it is not wanted.
std::vector<at::Tensor> attention_backward_cpu(const BackwardArgs& args);
std::vector<at::Tensor> attention_backward_meta(const BackwardArgs& args);

AttentionResult decode_cpu(const DecodeArgs& args);
AttentionResult decode_meta(const DecodeArgs& args);

// Uninitialised results of the right shapes, dtypes and strides.
template <class Args>
AttentionResult empty_result(const Args& args, const Dims& dims);
std::vector<at::Tensor> empty_gradients(const BackwardArgs& args);

// The dtype of everything that is not q, k, v or like them.
inline at::ScalarType real_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace tempera::ops
