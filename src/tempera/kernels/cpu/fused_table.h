#pragma once

#include <cstdint>

#include "tempera/kernels/fused.h"

namespace tempera::kernels::cpu {

// Rows are dealt to this many fixed parts, whose sums are then added in order: the same bits on any
// number of workers.
inline constexpr int64_t kNormParts = 32;

// The passes of kernels/fused.h for one storage type and one instruction set.
template <class T>
struct FusedTable {
  void (*norm_forward)(const NormParams<T>&, const NormOutputs<T>&, Parallel&);
  void (*norm_backward)(const NormParams<T>&, const NormGradients<T>&, Parallel&, float*);
  void (*swiglu_forward)(const SwigluParams<T>&, T*, Parallel&);
  void (*swiglu_backward)(const SwigluParams<T>&, const T*, T*, Parallel&);
  void (*rotary)(const RotaryParams<T>&, Parallel&);
  void (*quantize)(const QuantizeParams<T>&, Parallel&);
  void (*cross_entropy)(const CrossEntropyParams<T>&, Parallel&);
};

}  // namespace tempera::kernels::cpu
