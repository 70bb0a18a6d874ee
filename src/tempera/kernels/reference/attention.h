#pragma once

#include "tempera/kernels/attention.h"

// The oracle: the formulas of attention.h written down row by row, with every feature, for T =
// double. It has no limits on sizes, no threads and no workspace, and it is slow. All tests compare
// with it, and double tensors are computed by it. T = float is a yardstick: the error of this naive
// arithmetic in single precision bounds that of the fast kernels.
namespace tempera::kernels::reference {

// Tensor cores take what rows are multiplied by, in the sums of out and of the gradients of q, k
// and v, in bf16. grid > 0: these weights are rounded to grid times a bf16 number; the error of a
// sum is a matter of luck, and every grid draws it anew. 0: they are not rounded.
struct Weights {
  double grid = 0;
};

template <class T>
void forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
             Weights weights = {});

// Reads gradients.out as the fast kernels do, and computes the probabilities anew rather than from
// gradients.lse.
template <class T>
void backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
              Weights weights = {});

template <class T>
void decode(const DecodeParams<T>& params, const AttentionOutputs<T>& outputs,
            Weights weights = {});

}  // namespace tempera::kernels::reference
