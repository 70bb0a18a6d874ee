#pragma once

#include "tempera/kernels/attention.h"

// The checks that every backend makes before it starts: shapes, required pointers, options out of
// range and outputs whose rows overlap. They throw tempera::Error. Empty tensors (no sequences, no
// rows) pass: nothing is computed.
namespace tempera::kernels {

template <class T>
void validate(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs);
template <class T>
void validate(const AttentionParams<T>& params, const AttentionGradients<T>& gradients);
template <class T, class C>
void validate(const DecodeParams<T, C>& params, const AttentionOutputs<T>& outputs);

}  // namespace tempera::kernels
