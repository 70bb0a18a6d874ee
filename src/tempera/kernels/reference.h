#pragma once

#include "tempera/kernels/attention.h"

// The oracle: the formulas of attention.h written down in double precision, row by row, with every
// feature. It has no limits on sizes, no threads and no workspace, and it is slow. All tests
// compare with it, and double tensors are computed by it.
namespace tempera::kernels::reference {

void forward(const AttentionParams<double>& params, const AttentionOutputs<double>& outputs);

// Computes the probabilities anew: gradients.out and gradients.lse are required as everywhere, but
// not trusted.
void backward(const AttentionParams<double>& params, const AttentionGradients<double>& gradients);

void decode(const DecodeParams<double>& params, const AttentionOutputs<double>& outputs);

}  // namespace tempera::kernels::reference
