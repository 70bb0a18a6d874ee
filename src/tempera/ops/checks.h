#pragma once

#include <c10/core/SymInt.h>

#include "tempera/ops/attention.h"

// What can be said about the arguments without reading their numbers, so that it also holds for
// tensors without storage (Meta). The checks throw tempera::Error.
namespace tempera::ops {

struct Dims {
  c10::SymInt batch, q_heads, kv_heads, q_rows, kv_rows, qk_size, v_size;
};

Dims check(const AttentionArgs& args);
// kv_rows: the capacity of the cache of one sequence.
Dims check(const DecodeArgs& args);

}  // namespace tempera::ops
