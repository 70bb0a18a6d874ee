#pragma once

#include <algorithm>

#include "tempera/kernels/cuda/device.cuh"
#include "tempera/kernels/cuda/prologue.h"

// A warp stays with one head and walks over rows, kWarp / kLanes of them at a time, so that what
// belongs to the head (bias, w, gain) and the sums of its gradients stay in registers. The warps of
// a block take neighbouring heads of the same rows: the projection is read in long runs, and the
// angles of a row come from the first-level cache for all heads but the first.
namespace tempera::kernels::cuda {

constexpr int kPrologueWarps = 8;
constexpr int64_t kPrologueRows = 128;  // of a block

template <class T>
int64_t prologue_slots(const PrologueParams<T>& p) {
  return p.q.heads + p.k.heads + p.v.heads;
}
template <class T>
int64_t prologue_size(const PrologueParams<T>& p) {
  return std::max({p.q.heads ? p.q.size : 0, p.k.heads ? p.k.size : 0, p.v.heads ? p.v.size : 0});
}
template <class T>
dim3 prologue_grid(const PrologueParams<T>& p) {
  return dim3(static_cast<unsigned>(ceil_div(p.rows, kPrologueRows)),
              static_cast<unsigned>(ceil_div(prologue_slots(p), kPrologueWarps)),
              static_cast<unsigned>(p.batch));
}

enum class Operand { kQ, kK, kV };

// Which head the slot is: those of q come first, then k's, then v's.
struct PrologueHead {
  Operand which;
  int64_t head;
  int64_t column;  // of the projection
};
template <class T>
__device__ inline PrologueHead prologue_head(const PrologueParams<T>& p, int64_t slot) {
  if (slot < p.q.heads) return {Operand::kQ, slot, slot * p.q.size};
  slot -= p.q.heads;
  const int64_t after_q = p.q.heads * p.q.size;
  if (slot < p.k.heads) return {Operand::kK, slot, after_q + slot * p.k.size};
  slot -= p.k.heads;
  return {Operand::kV, slot, after_q + p.k.heads * p.k.size + slot * p.v.size};
}

template <class X>
__device__ inline const X& choose(Operand which, const X& q, const X& k, const X& v) {
  return which == Operand::kQ ? q : which == Operand::kK ? k : v;
}

// What a lane keeps of its head: eight columns.
template <class T, int kLanes>
struct PrologueLane {
  const PrologueOperand& operand;
  PrologueHead place;
  int chunk;      // which eight columns
  int64_t first;  // the first of them
  bool live;      // the head has them
  float bias[kPack], w[kPack], gain[kPack];
  float s, c, g;
  int partner = 0;  // the chunk that these columns are rotated with
  float sign = 0;   // of its share; 0: these columns stay

  __device__ PrologueLane(const PrologueParams<T>& p, int64_t slot)
      : operand(choose(prologue_head(p, slot).which, p.q, p.k, p.v)),
        place(prologue_head(p, slot)),
        chunk(static_cast<int>(threadIdx.x) % kLanes),
        first(chunk * kPack),
        live(first < operand.size) {
    const PrologueScale& scale = operand.scale;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      bias[i] = live && p.bias ? p.bias[place.column + first + i] : 0;
      w[i] = live && scale.w ? scale.w[place.head * operand.size + first + i] : 0;
      const int64_t row = operand.gain_by_head ? place.head * operand.size : 0;
      gain[i] = live && operand.gain ? operand.gain[row + first + i] : 1;
    }
    s = scale.s ? scale.s[place.head] : 1;
    c = scale.c ? scale.c[place.head] : 0;
    g = scale.g ? scale.g[place.head] : 0;
    partner = chunk;
    if (!operand.rotate || first >= 2 * p.pairs) return;
    const int half = static_cast<int>(p.pairs) / kPack;
    partner = chunk < half ? chunk + half : chunk - half;
    sign = chunk < half ? -1 : 1;
  }

  // (cos, sin) turns y; direction -1 turns it back. All lanes of the warp call it.
  __device__ void rotate(const PrologueParams<T>& p, int64_t b, int64_t t, bool whole,
                         float direction, float (&y)[kPack]) const {
    if (!operand.rotate) return;  // uniform over the warp
    float cos[kPack], sin[kPack];
    if (sign != 0) {
      const int64_t row = p.table_row ? p.table_row[b * p.rows + t] : t;
      const int64_t at = row * p.pairs + (sign < 0 ? first : first - p.pairs);
      load_floats(p.cos + at, whole, cos);
      load_floats(p.sin + at, whole, sin);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float other = __shfl_sync(kAllLanes, y[i], partner, kLanes);
      if (sign != 0) y[i] = fmaf(direction * sign * other, sin[i], y[i] * cos[i]);
    }
  }
};

// The numbers of one row of a head.
template <class T, int kLanes>
struct PrologueRow {
  float rstd = 1;
  float tanh_term = 0;
  float log_n = 0;
  float sum = 1;       // c + tanh + g log n; 1 without a recipe
  float finished = 1;  // the caller's scale
  float a = 1;

  // x: eight columns of the projection, bias included. gelu: of them, where there is a w.
  __device__ PrologueRow(const PrologueParams<T>& p, const PrologueLane<T, kLanes>& lane, int64_t b,
                         int64_t t, const float (&x)[kPack], const float (&gelu)[kPack]) {
    const PrologueOperand& operand = lane.operand;
    const PrologueScale& scale = operand.scale;
    if (operand.norm) {
      float square = 0;
#pragma unroll
      for (int i = 0; i < kPack; ++i) square = fmaf(x[i], x[i], square);
      const float mean = sum_lanes<kLanes>(square) / static_cast<float>(operand.size);
      rstd = rsqrtf(mean + p.epsilon);
    }
    if (scale.recipe()) {
      sum = lane.c;
      if (scale.w) {
        float f = 0;
#pragma unroll
        for (int i = 0; i < kPack; ++i) f = fmaf(lane.w[i], gelu[i], f);
        tanh_term = tanh_of(sum_lanes<kLanes>(f));
        sum += tanh_term;
      }
      if (scale.g) {
        log_n = p.log_n[b * p.rows + t];
        sum = fmaf(lane.g, log_n, sum);
      }
    }
    if (scale.rows.data) finished = *row_at(scale.rows, b, lane.place.head, t);
    a = finished * lane.s * sum;
  }
};

// Calls kernel.template operator()<kLanes>() with the lanes that a row of so many columns takes.
template <class Kernel>
void with_lanes(int64_t size, Kernel kernel) {
  if (size <= 32) return kernel.template operator()<4>();
  if (size <= 64) return kernel.template operator()<8>();
  if (size <= 128) return kernel.template operator()<16>();
  return kernel.template operator()<32>();
}

}  // namespace tempera::kernels::cuda
