#pragma once

#include <cstddef>
#include <cstdint>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/cuda/stream.h"

// Attention with everything that attention.h describes, for T = float and BFloat16: the same
// structs with pointers of the device, mask, lengths and block table included. It is for what the
// fused kernels of libraries cannot do; plain masks are theirs. Products of bf16 are of the tensor
// cores, those of float are exact ones. Nothing waits for the device: key_begin, key_end and
// lengths are clamped and not checked, and block tables are trusted. The same inputs give the same
// bits. Workspaces are aligned to 256 bytes; the kernels expect nothing of their contents.
namespace tempera::kernels::cuda {

// Bytes of a block's shared memory that the passes over rows of this shape take, whatever else a
// call has: what a GPU has less of, it cannot run.
template <class T>
int64_t attention_shared_bytes(const Shape& shape);
template <class T>
int64_t decode_shared_bytes(const Shape& shape);

template <class T>
size_t attention_forward_workspace(const AttentionParams<T>& params);
template <class T>
void attention_forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
                       void* workspace, Stream stream);

// A bias gradient that is summed over query rows (a row stride of 0) is refused.
template <class T>
size_t attention_backward_workspace(const AttentionParams<T>& params,
                                    const AttentionGradients<T>& gradients);
template <class T>
void attention_backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
                        void* workspace, Stream stream);

// Split over the keys, so that one sequence fills the device.
template <class T>
size_t decode_workspace(const DecodeParams<T>& params);
template <class T>
void decode(const DecodeParams<T>& params, const AttentionOutputs<T>& outputs, void* workspace,
            Stream stream);

}  // namespace tempera::kernels::cuda
