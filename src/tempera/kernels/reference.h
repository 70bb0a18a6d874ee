#pragma once

#include "tempera/kernels/attention.h"

// The oracle: the formulas of attention.h written down row by row, with every feature, for T =
// double. It has no limits on sizes, no threads and no workspace, and it is slow. All tests compare
// with it, and double tensors are computed by it. T = float is a yardstick: the error of this naive
// arithmetic in single precision bounds that of the fast kernels.
namespace tempera::kernels::reference {

template <class T>
void forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs);

// Reads gradients.out as the fast kernels do, and computes the probabilities anew rather than from
// gradients.lse.
template <class T>
void backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients);

template <class T>
void decode(const DecodeParams<T>& params, const AttentionOutputs<T>& outputs);

}  // namespace tempera::kernels::reference
