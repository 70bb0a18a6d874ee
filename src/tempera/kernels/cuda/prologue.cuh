#pragma once

#include <algorithm>

#include "tempera/kernels/cuda/device.cuh"
#include "tempera/kernels/cuda/prologue.h"

// A warp stays with one head and walks over rows, kWarp / kLanes of them at a time, so that what
// belongs to the head (bias, w, gain) and the sums of its gradients stay in registers. The warps of
// a block, and blocks that run side by side, take neighbouring heads of the same rows: memory is
// read in long runs, and the angles of a row come from a cache for all heads but the first.
namespace tempera::kernels::cuda {

constexpr int kPrologueWarps = 4;

template <class T>
int64_t prologue_slots(const PrologueParams<T>& p) {
  return p.q.heads + p.k.heads + p.v.heads;
}
template <class T>
int64_t prologue_size(const PrologueParams<T>& p) {
  return std::max({p.q.heads ? p.q.size : 0, p.k.heads ? p.k.size : 0, p.v.heads ? p.v.size : 0});
}
// Rows of a block: `most`, unless the GPU would not be full then.
template <class T>
int prologue_rows(const PrologueParams<T>& p, int most) {
  constexpr int64_t kFull = 1024;  // blocks
  const int64_t columns = p.batch * ceil_div(prologue_slots(p), kPrologueWarps);
  int rows = most;
  while (rows > 16 && columns * ceil_div(p.rows, rows) < kFull) rows /= 2;
  return rows;
}
template <class T>
dim3 prologue_grid(const PrologueParams<T>& p, int rows) {
  return dim3(static_cast<unsigned>(ceil_div(prologue_slots(p), kPrologueWarps)),
              static_cast<unsigned>(ceil_div(p.rows, rows)), static_cast<unsigned>(p.batch));
}

enum class Operand { kQ, kK, kV };

// Which head the slot is: those of q come first, then k's, then v's.
struct PrologueHead {
  Operand which;
  int64_t head;
  int64_t column;  // of the bias
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

// What a kernel has code for.
struct PrologueFull {  // everything
  static constexpr bool kNorms = true, kTurns = true;
};
struct PrologueTurns {  // rotations and recipes
  static constexpr bool kNorms = false, kTurns = true;
};
struct PrologueRecipes {  // recipes
  static constexpr bool kNorms = false, kTurns = false;
};

// What a lane keeps of its head: eight columns, in two halves where there are rotations: columns
// that are rotated together stay in one lane. By value, since a load through a reference into the
// parameters would come back in every row. Vectors of the head are in shared memory, which the warp
// has for itself: registers are what the kernels are short of.
template <class T, int kLanes, bool kWhole, class Kind>
struct PrologueLane {
  PrologueHead place;
  int first;  // column of the first half
  int gap;    // from there to the second half
  bool live;  // the head has these columns
  bool rotated;
  bool norm, counts, recipe;
  const float* log_n;  // of this sequence
  float inverse_size;
  const float* w;  // of these columns, in shared memory; null: none
  const float* bias = nullptr;
  const float* gain = nullptr;
  const float* finished = nullptr;  // the caller's scales of this sequence and head
  int64_t finished_step = 0;
  float s, c, g;
  bool is_logit;

  // shared: (kPrologueWarps, 3, kLanes * kPack). What is copied there arrives with the first rows
  // of the stream that is made next.
  __device__ PrologueLane(const PrologueParams<T>& p, const PrologueHead& head, int64_t b,
                          float* shared)
      : place(head) {
    const PrologueOperand& operand = choose(place.which, p.q, p.k, p.v);
    const PrologueScale& scale = operand.scale;
    const int chunk = static_cast<int>(threadIdx.x) % kLanes;
    const auto size = static_cast<int>(operand.size);
    const int half = operand.rotate ? static_cast<int>(p.pairs) : size / 2;
    const bool folded = Kind::kTurns && 4 * chunk < half;
    first = folded ? 4 * chunk : kPack * chunk;
    gap = folded ? half : kPack / 2;
    live = kPack * chunk < size;
    rotated = operand.rotate && folded && live;
    norm = operand.norm;
    counts = scale.g;
    recipe = scale.recipe();
    log_n = p.log_n ? p.log_n + b * p.rows : nullptr;
    inverse_size = 1 / static_cast<float>(operand.size);
    s = scale.s ? scale.s[place.head] : 1;
    c = scale.c ? scale.c[place.head] : 0;
    g = scale.g ? scale.g[place.head] : 0;
    is_logit = scale.g && scale.g_is_logit;
    constexpr int kColumns = kLanes * kPack;
    float* const mine = shared + threadIdx.x / kWarp * 3 * kColumns;
    const auto keep = [&](const float* from, int which) -> const float* {
      if (!from) return nullptr;
#pragma unroll
      for (int i = 0; i < kColumns; i += kWarp) {
        const int column = i + static_cast<int>(threadIdx.x) % kWarp;
        copy_bytes<4>(mine + which * kColumns + column, from + column, column < size ? 4 : 0);
      }
      return mine + which * kColumns + first;
    };
    w = keep(scale.w ? scale.w + place.head * operand.size : nullptr, 0);
    if constexpr (Kind::kNorms) {
      bias = keep(p.bias ? p.bias + place.column : nullptr, 1);
      gain = keep(operand.gain, 2);
      finished = scale.rows.data ? row_at(scale.rows, b, place.head, 0) : nullptr;
      finished_step = scale.rows.row;
    }
  }
  // To be called when that stream is under way, so that nothing waits for g alone.
  __device__ void settle() {
    if (is_logit) g = sigmoid_of(g);
  }

  // The lane's columns; from: its first one.
  template <class X>
  __device__ Pack<X> load(const X* from, bool whole = kWhole) const {
    return Kind::kTurns ? load_halves(from, gap, whole) : load_pack(from, whole);
  }
  // Those of a row in shared memory.
  __device__ void read(const T* row, float (&to)[kPack]) const {
    unpack(load(row + first, true), to);
  }
  __device__ void store(T* to, const Pack<T>& pack) const {
    if constexpr (Kind::kTurns)
      store_halves(to, gap, pack, kWhole);
    else
      store_pack(to, pack, kWhole);
  }

  __device__ void add_bias(float (&x)[kPack]) const {
    if (!bias) return;
    float add[kPack];
    unpack(load(bias, true), add);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] += add[i];
  }
  __device__ void multiply_gain(float (&x)[kPack]) const {
    if (!gain) return;
    float factor[kPack];
    unpack(load(gain, true), factor);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] *= factor[i];
  }

  // (cos, sin) turns y; direction -1 turns it back.
  __device__ void rotate(const PrologueParams<T>& p, int64_t b, int t, float direction,
                         float (&y)[kPack]) const {
    if (!Kind::kTurns || !rotated) return;
    const int row = p.table_row ? static_cast<int>(p.table_row[b * p.rows + t]) : t;
    const int at = row * static_cast<int>(p.pairs) + first;
    float cos[4], sin[4];
    load_four(p.cos + at, cos);
    load_four(p.sin + at, sin);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = y[i], other = y[i + 4], turn = direction * sin[i];
      y[i] = fmaf(-other, turn, x * cos[i]);
      y[i + 4] = fmaf(x, turn, other * cos[i]);
    }
  }

 private:
  __device__ static void load_four(const float* from, float (&to)[4]) {
    if constexpr (kWhole) {
      const float4 four = *reinterpret_cast<const float4*>(from);
      to[0] = four.x;
      to[1] = four.y;
      to[2] = four.z;
      to[3] = four.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = from[i];
    }
  }
};

// Rows of a head on their way into shared memory that the warp has for itself, from kSources
// places. It takes many bytes under way to keep memory busy, more than there are registers for. A
// stage has kGroups times kStep rows. A lane fetches eight columns of a row, and may read those of
// others; rows behind the end and columns behind the head's are 0.
template <class T, int kLanes, bool kWhole, int kSources, int kGroupsOfStage>
class PrologueStream {
 public:
  static constexpr int kStep = kWarp / kLanes;
  static constexpr int kGroups = kGroupsOfStage;
  static constexpr unsigned kStages = 4;
  static constexpr unsigned kElements = kWarp * kPack;  // of a group
  static constexpr unsigned kMemory = kStages * kSources * kGroups * kElements;

  // memory: kMemory elements of this warp. size: columns of the head.
  __device__ PrologueStream(T* memory, int64_t size, int64_t b, int64_t head, int begin, int end,
                            const Rows<const T>* const (&sources)[kSources])
      : at_(begin + static_cast<int>(threadIdx.x) % kWarp / kLanes), end_(end) {
    const unsigned lane = threadIdx.x % kWarp;
    if (kPack * (lane % kLanes) >= size) end_ = begin;
    to_ = memory + lane * kPack;
    row_ = memory + lane / kLanes * (kLanes * kPack);
#pragma unroll
    for (int i = 0; i < kSources; ++i) {
      from_[i] = row_at(*sources[i], b, head, at_) + kPack * (lane % kLanes);
      step_[i] = kStep * sources[i]->row;
    }
#pragma unroll 1
    for (stage_ = kStage; stage_ < kMemory; stage_ += kStage) fetch();
    stage_ = 0;
  }

  // The rows of the stage are there, for all lanes.
  __device__ void wait() const {
    await_copies<static_cast<int>(kStages) - 2>();
    __syncwarp();
  }
  __device__ const T* row(int group, int source = 0) const {
    return row_ + stage_ + (source * kGroups + group) * kElements;
  }
  // To the next stage. What lies furthest ahead takes the place of the stage before this one, which
  // all lanes have read.
  __device__ void go_on() {
    fetch();
    stage_ = (stage_ + kStage) % kMemory;
  }

 private:
  static constexpr unsigned kStage = kSources * kGroups * kElements;

  __device__ void fetch() {
    T* const stage = to_ + (stage_ + kMemory - kStage) % kMemory;
#pragma unroll
    for (int group = 0; group < kGroups; ++group, at_ += kStep)
#pragma unroll
      for (int i = 0; i < kSources; ++i) {
        fetch_pack(stage + (i * kGroups + group) * kElements, from_[i], at_ < end_);
        from_[i] += step_[i];
      }
    commit_copies();
  }
  __device__ static void fetch_pack(T* to, const T* from, bool there) {
    constexpr int kVector = kWhole ? 16 / static_cast<int>(sizeof(T)) : 1;
#pragma unroll
    for (int column = 0; column < kPack; column += kVector)
      if constexpr (kWhole)
        copy_bytes<16>(to + column, from + column, there ? 16 : 0);
      else
        to[column] = there ? from[column] : T{};
  }

  int at_, end_;
  unsigned stage_;  // elements before it
  T *to_, *row_;
  const T* from_[kSources];
  int64_t step_[kSources];
};

// Calls body(group, t, to) for every row t of this lane in [begin, end), and for some behind: all
// lanes have to take part in sums. The row is in the stream's group; `to` is where the lane's
// columns of it go.
template <class T, int kLanes, bool kWhole, class Kind, class Stream, class Body>
__device__ inline void walk_rows(const PrologueLane<T, kLanes, kWhole, Kind>& lane, Stream& stream,
                                 const Rows<T>& out, int64_t b, int begin, int end, Body body) {
  int t = begin + static_cast<int>(threadIdx.x) % kWarp / kLanes;
  T* to = row_at(out, b, lane.place.head, t) + lane.first;
  const int64_t step = Stream::kStep * out.row;
#pragma unroll 1
  for (int base = begin; base < end; base += Stream::kGroups * Stream::kStep) {
    stream.wait();
#pragma unroll
    for (int group = 0; group < Stream::kGroups; ++group, t += Stream::kStep, to += step)
      body(group, t, to);
    stream.go_on();
  }
}

// The numbers of one row of a head. kReads: the head has a w.
template <bool kReads, class T, int kLanes, bool kWhole, class Kind>
struct PrologueRow {
  float rstd = 1;
  float tanh_term = 0;
  float log_n = 0;
  float sum = 1;       // c + tanh + g log n; 1 without a recipe
  float finished = 1;  // the caller's scale
  float a = 1;

  // x: eight columns of the projection, bias included. f: their share of <w, gelu(x)>.
  __device__ PrologueRow(const PrologueParams<T>& p,
                         const PrologueLane<T, kLanes, kWhole, Kind>& lane, int t,
                         const float (&x)[kPack], float f) {
    if (lane.counts) log_n = lane.log_n ? lane.log_n[t] : quick_log(static_cast<float>(t + 1));
    if constexpr (Kind::kNorms) {
      if (lane.finished) finished = lane.finished[t * lane.finished_step];
      if (lane.norm) {
        float square = 0;
#pragma unroll
        for (int i = 0; i < kPack; ++i) square = fmaf(x[i], x[i], square);
        rstd = rsqrtf(fmaf(sum_lanes<kLanes>(square), lane.inverse_size, p.epsilon));
      }
    }
    if constexpr (kReads) tanh_term = tanh_of(sum_lanes<kLanes>(f));
    if (kReads || lane.recipe) sum = fmaf(lane.g, log_n, lane.c + tanh_term);
    a = finished * lane.s * sum;
  }
};

template <int kLanes>
constexpr int kPrologueShared = kPrologueWarps * 3 * kLanes * kPack;  // floats

// Calls kernel.template operator()<kLanes, kWhole, Kind>() with the lanes that a row takes. Vectors
// that are not aligned are rare, and need no fast variant.
template <class Kind, class Kernel>
void with_lanes(int64_t size, bool whole, Kernel kernel) {
  if (!whole) return kernel.template operator()<32, false, Kind>();
  if (size <= 32) return kernel.template operator()<4, true, Kind>();
  if (size <= 64) return kernel.template operator()<8, true, Kind>();
  if (size <= 128) return kernel.template operator()<16, true, Kind>();
  return kernel.template operator()<32, true, Kind>();
}
// Arithmetic holds the kernels back, not memory: what is not there has no code.
template <class T, class Kernel>
void with_variant(const PrologueParams<T>& p, bool whole, Kernel kernel) {
  bool norms = p.bias, turns = false;
  for (const PrologueOperand* operand : {&p.q, &p.k, &p.v}) {
    if (operand->heads == 0) continue;
    norms = norms || operand->norm || operand->scale.rows.data;
    turns = turns || operand->rotate;
  }
  const int64_t size = prologue_size(p);
  if (norms)
    with_lanes<PrologueFull>(size, whole, kernel);
  else if (turns)
    with_lanes<PrologueTurns>(size, whole, kernel);
  else
    with_lanes<PrologueRecipes>(size, whole, kernel);
}

}  // namespace tempera::kernels::cuda
