#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tempera/ops/attention.h"

// Everything between the projections to q, k and v and attention, in one pass over memory
// (kernels/cuda/prologue.h has the formula).
namespace tempera::ops::cuda {

// The heads of q, k or v: a * rotation(norm(x) * gain), a as in attention.h.
struct PrologueOperand {
  int64_t heads = 0;
  at::Tensor x = {};  // (B, heads, T, size); undefined: the heads are in the joint projection
  bool norm = false;
  bool rotate = false;
  at::Tensor gain = {};  // (size); undefined: 1
  at::Tensor rows = {};  // broadcasts to (B, heads, T)
  Recipe recipe = {};    // without a source: w reads the raw projection
};

struct PrologueArgs {
  at::Tensor x;  // (B, T, columns): the heads of every operand in turn; undefined: each has its own
  int64_t size = 0;                       // columns of a head
  std::vector<PrologueOperand> operands;  // up to three
  double epsilon = 0;                     // of the norms
  at::Tensor cos = {}, sin = {};  // (length, pairs), as rotary() takes them; undefined: no rotation
  at::Tensor positions = {};      // (B, T), trusted to lie inside the tables
  at::Tensor log_n = {};          // (B, T): of the visible keys; undefined: log(t + 1)
};

}  // namespace tempera::ops::cuda
