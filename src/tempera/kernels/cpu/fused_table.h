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
  void (*norm_forward)(const NormParams<T>&, T*, T*, float*, float*, Parallel&);
  void (*norm_backward)(const NormParams<T>&, const float*, const float*, const T*, const T*, T*,
                        float*, float*, Parallel&, float*);
  void (*swiglu_forward)(int64_t, int64_t, const T*, T*, Parallel&);
  void (*swiglu_backward)(int64_t, int64_t, const T*, const T*, T*, Parallel&);
  void (*rotary)(const RotaryParams<T>&, Parallel&);
  void (*cross_entropy)(const CrossEntropyParams<T>&, Parallel&);
};

}  // namespace tempera::kernels::cpu
