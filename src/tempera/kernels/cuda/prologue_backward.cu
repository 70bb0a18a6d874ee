#include "tempera/kernels/cuda/error.h"
#include "tempera/kernels/cuda/launch.cuh"
#include "tempera/kernels/cuda/prologue.cuh"

namespace tempera::kernels::cuda {
namespace {

// The sums of one block and head: w, bias and gain (size each), then g, c, s.
__host__ __device__ constexpr int64_t record_size(int64_t size) { return 3 * size + 4; }

template <int kLanes, class Kind>
struct Sums {
  float w[kPack] = {}, bias[kPack] = {}, gain[kPack] = {};
  float g = 0, c = 0, s = 0;

  // Over the rows that the warp took at a time.
  __device__ void add_up() {
#pragma unroll
    for (int step = kLanes; step < kWarp; step *= 2) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        w[i] += __shfl_xor_sync(kAllLanes, w[i], step);
        if constexpr (Kind::kNorms) {
          bias[i] += __shfl_xor_sync(kAllLanes, bias[i], step);
          gain[i] += __shfl_xor_sync(kAllLanes, gain[i], step);
        }
      }
      g += __shfl_xor_sync(kAllLanes, g, step);
      c += __shfl_xor_sync(kAllLanes, c, step);
      s += __shfl_xor_sync(kAllLanes, s, step);
    }
  }

  __device__ void write(float* record, int64_t size, int first, int gap) const {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int column = first + (i < kPack / 2 ? i : gap + i - kPack / 2);
      record[column] = w[i];
      if constexpr (Kind::kNorms) {
        record[size + column] = bias[i];
        record[2 * size + column] = gain[i];
      }
    }
    if (first != 0) return;
    record[3 * size] = g;
    record[3 * size + 1] = c;
    record[3 * size + 2] = s;
  }
};

// d: the gradient of the row's eight outputs; becomes that of the projection.
template <bool kReads, class T, int kLanes, bool kWhole, class Kind>
__device__ void row_backward(const PrologueParams<T>& p,
                             const PrologueLane<T, kLanes, kWhole, Kind>& lane, float* d_finished,
                             int64_t b, int t, bool active, const float (&x)[kPack],
                             float (&d)[kPack], Sums<kLanes, Kind>& sums) {
  float gelu[kPack], slope[kPack];  // slope: of w * gelu
  float f = 0;
  if constexpr (kReads) {
    unpack(lane.load(lane.w, true), slope);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const Normal normal = normal_at<T>(x[i]);
      gelu[i] = x[i] * normal.below;
      f = fmaf(slope[i], gelu[i], f);
      slope[i] *= fmaf(x[i], normal.density, normal.below);
    }
  }
  const PrologueRow<kReads, T, kLanes, kWhole, Kind> row(p, lane, t, x, f);
  lane.rotate(p, b, t, -1, d);

  // d_a = <d * gain, x * rstd>; the norm's own backward needs the same product.
  if constexpr (Kind::kNorms)
    if (lane.norm) {
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        sums.gain[i] = fmaf(row.a * row.rstd * d[i], x[i], sums.gain[i]);
      lane.multiply_gain(d);
    }
  float d_a = 0;
#pragma unroll
  for (int i = 0; i < kPack; ++i) d_a = fmaf(d[i], x[i], d_a);
  d_a = sum_lanes<kLanes>(d_a) * row.rstd;
  const float factor = row.a * row.rstd;
#pragma unroll
  for (int i = 0; i < kPack; ++i) d[i] *= factor;
  if constexpr (Kind::kNorms) {
    const float mean = lane.norm ? factor * row.rstd * d_a * lane.inverse_size : 0;
#pragma unroll
    for (int i = 0; i < kPack; ++i) d[i] = fmaf(-mean, x[i], d[i]);
    if (d_finished && active && lane.first == 0) *d_finished = d_a * lane.s * row.sum;
  }
  if (kReads || lane.recipe) {
    const float d_recipe = d_a * row.finished;
    const float d_sum = d_recipe * lane.s;
    sums.s = fmaf(d_recipe, row.sum, sums.s);
    sums.c += d_sum;
    sums.g = fmaf(d_sum, row.log_n, sums.g);
    if constexpr (kReads) {
      const float d_f = d_sum * (1 - row.tanh_term * row.tanh_term);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        sums.w[i] = fmaf(d_f, gelu[i], sums.w[i]);
        d[i] = fmaf(d_f, slope[i], d[i]);
      }
    }
  }
  if constexpr (Kind::kNorms)
#pragma unroll
    for (int i = 0; i < kPack; ++i) sums.bias[i] += d[i];
}

// What the gradient of a head goes through where it is turned and no more, or not even that: the
// projection is not read.
template <class T, int kLanes, bool kWhole, class Kind>
__device__ inline void turn_back(const PrologueParams<T>& p,
                                 PrologueLane<T, kLanes, kWhole, Kind>& lane,
                                 const PrologueHead& place, int64_t size,
                                 const Rows<const T>& d_out, const Rows<T>& d_in, int64_t b,
                                 int begin, int end, T* memory) {
  constexpr int kGroups = sizeof(T) == 2 ? 2 : 1;
  PrologueStream<T, kLanes, kWhole, 1, kGroups> stream(memory, size, b, place.head, begin, end,
                                                       {&d_out});
  walk_rows(lane, stream, d_in, b, begin, end, [&](int group, int t, T* to) {
    float d[kPack];
    lane.read(stream.row(group), d);
    lane.rotate(p, b, min(t, end - 1), -1, d);
    if (lane.live && t < end) lane.store(to, pack_of<T>(d));
  });
}

template <class T, int kLanes, bool kWhole, class Kind>
__global__ void __launch_bounds__(kPrologueWarps* kWarp, Kind::kNorms ? 4 : 5)
    backward_kernel(const __grid_constant__ PrologueParams<T> p,
                    const __grid_constant__ PrologueGradients<T> gradients, int size, int rows,
                    float* records /* null: no sums are wanted */) {
  const int64_t slots = p.q.heads + p.k.heads + p.v.heads;
  const int64_t slot = int64_t{blockIdx.x} * kPrologueWarps + threadIdx.x / kWarp;
  if (slot >= slots) return;
  // From the end: what the kernel before wrote last is still in the cache.
  const int64_t b = gridDim.z - 1 - blockIdx.z;
  const int block = static_cast<int>(gridDim.y - 1 - blockIdx.y);
  const PrologueHead place = prologue_head(p, slot);
  const PrologueOperand& operand = choose(place.which, p.q, p.k, p.v);
  const Rows<const T>& d_out = choose(place.which, gradients.d_q, gradients.d_k, gradients.d_v);
  const Rows<T>& d_in = choose(place.which, gradients.x_q, gradients.x_k, gradients.x_v);
  const int begin = block * rows;
  const int end = min(static_cast<int>(p.rows), begin + rows);
  using Stream = PrologueStream<T, kLanes, kWhole, 2, 1>;
  using Lane = PrologueLane<T, kLanes, kWhole, Kind>;
  __shared__ alignas(16) T memory[kPrologueWarps][Stream::kMemory];
  __shared__ alignas(16) float shared[kPrologueShared<kLanes>];
  T* const mine = memory[threadIdx.x / kWarp];
  await_earlier_kernels();
  admit_next_kernel();
  Lane lane(p, place, b, shared);
  if (!(operand.norm || operand.scale.recipe() || operand.scale.rows.data || gradients.bias))
    return turn_back(p, lane, place, operand.size, d_out, d_in, b, begin, end, mine);
  Stream stream(mine, operand.size, b, place.head, begin, end,
                {&choose(place.which, p.x_q, p.x_k, p.x_v), &d_out});
  lane.settle();
  const Rows<float>& d_scale =
      choose(place.which, gradients.q.rows, gradients.k.rows, gradients.v.rows);
  float* const d_finished = d_scale.data ? row_at(d_scale, b, place.head, 0) : nullptr;
  const int64_t d_finished_step = d_scale.row;
  Sums<kLanes, Kind> sums;
  const auto walk = [&]<bool kReads>() {
    walk_rows(lane, stream, d_in, b, begin, end, [&](int group, int t, T* to) {
      const bool active = lane.live && t < end;
      float x[kPack], d[kPack];
      lane.read(stream.row(group, 0), x);
      lane.read(stream.row(group, 1), d);
      if constexpr (Kind::kNorms) lane.add_bias(x);
      float* const d_row = d_finished ? d_finished + t * d_finished_step : nullptr;
      row_backward<kReads>(p, lane, d_row, b, min(t, end - 1), active, x, d, sums);
      if (active) lane.store(to, pack_of<T>(d));
    });
  };
  if (lane.w)
    walk.template operator()<true>();
  else
    walk.template operator()<false>();
  if (!records) return;
  sums.add_up();
  if (lane.live && threadIdx.x % kWarp < kLanes)
    sums.write(records + ((b * gridDim.y + block) * slots + slot) * record_size(size), size,
               lane.first, lane.gap);
}

// Where a sum goes; `to` is null where it is not wanted.
struct SumPlace {
  float* to = nullptr;
  int heads = 1;  // that share it
  bool of_logit = false;
};

// The sum at this place of a record of the slot.
template <class T>
__device__ SumPlace sum_place(const PrologueParams<T>& p, const PrologueGradients<T>& gradients,
                              int size, int slot, int at) {
  const PrologueHead place = prologue_head(p, slot);
  const PrologueOperand& operand = choose(place.which, p.q, p.k, p.v);
  const PrologueOperandGradient& gradient =
      choose(place.which, gradients.q, gradients.k, gradients.v);
  const int part = at / size, column = at % size;
  const auto vector = [&](float* to, int64_t first) {
    return to && column < operand.size ? to + first + column : nullptr;
  };
  const auto number = [&](float* to) { return to ? to + place.head : nullptr; };
  const int64_t row = place.head * operand.size;
  if (part == 0) return {vector(gradient.w, row)};
  if (part == 1) return {vector(gradients.bias, place.column)};
  if (part == 2 && place.head > 0) return {};
  if (part == 2) return {vector(gradient.gain, 0), static_cast<int>(operand.heads)};
  if (column == 0) return {number(gradient.g), 1, operand.scale.g_is_logit};
  if (column == 1) return {number(gradient.c)};
  if (column == 2) return {number(gradient.s)};
  return {};
}

constexpr int kReducers = 16;  // threads that share a sum

// One sum of a record: over the blocks and, for a gain that heads share, over the heads.
template <class T>
__global__ void __launch_bounds__(kWarp* kReducers)
    reduce_kernel(const __grid_constant__ PrologueParams<T> p,
                  const __grid_constant__ PrologueGradients<T> gradients, int size,
                  const float* records, int blocks) {
  const int at = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  const SumPlace place = sum_place(p, gradients, size, static_cast<int>(blockIdx.y), at);
  const int64_t step = (p.q.heads + p.k.heads + p.v.heads) * record_size(size);
  const float* const record = records + blockIdx.y * record_size(size) + at;
  await_earlier_kernels();
  float sum = 0;
  for (int head = 0; place.to && head < place.heads; ++head) {
    constexpr int kAtOnce = 8;  // loads on their way before the first is needed
    for (int i = static_cast<int>(threadIdx.y); i < blocks; i += kAtOnce * kReducers) {
      float parts[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int block = i + j * kReducers;
        parts[j] = block < blocks ? record[head * record_size(size) + block * step] : 0;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) sum += parts[j];
    }
  }
  __shared__ float shared[kReducers][kWarp];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || !place.to) return;
#pragma unroll
  for (int i = 1; i < kReducers; ++i) sum += shared[i][threadIdx.x];
  if (place.of_logit) {
    const PrologueHead head = prologue_head(p, blockIdx.y);
    const float g = sigmoid_of(choose(head.which, p.q, p.k, p.v).scale.g[head.head]);
    sum *= g * (1 - g);
  }
  *place.to = sum;
}

template <class T>
bool has_sums(const PrologueGradients<T>& gradients) {
  const auto any = [](const PrologueOperandGradient& g) {
    return g.w || g.g || g.c || g.s || g.gain;
  };
  return gradients.bias || any(gradients.q) || any(gradients.k) || any(gradients.v);
}

// A block that ends in sums is worth more rows.
template <class T>
int backward_rows(const PrologueParams<T>& p, bool sums) {
  return prologue_rows(p, sums ? 64 : 32);
}
template <class T>
int64_t record_blocks(const PrologueParams<T>& p) {
  return p.batch * ceil_div(p.rows, backward_rows(p, true));
}

}  // namespace

template <class T>
size_t prologue_backward_workspace(const PrologueParams<T>& params) {
  return sizeof(float) * static_cast<size_t>(record_blocks(params) * prologue_slots(params) *
                                             record_size(prologue_size(params)));
}

template <class T>
void prologue_backward(const PrologueParams<T>& params, const PrologueGradients<T>& gradients,
                       void* workspace, Stream stream) {
  validate(params);
  bool whole = aligned(params.cos, 0) && aligned(params.sin, 0);
  const auto take = [&](int64_t heads, const auto& x, const auto& d_out, const auto& d_in) {
    if (heads) whole = whole && aligned(x) && aligned(d_out) && aligned(d_in);
  };
  take(params.q.heads, params.x_q, gradients.d_q, gradients.x_q);
  take(params.k.heads, params.x_k, gradients.d_k, gradients.x_k);
  take(params.v.heads, params.x_v, gradients.d_v, gradients.x_v);
  const auto size = static_cast<int>(prologue_size(params));
  const bool sums = has_sums(gradients);
  const int rows = backward_rows(params, sums);
  auto* records = static_cast<float*>(workspace);
  if (params.batch * params.rows > 0)
    with_variant(params, whole, [&]<int kLanes, bool kWhole, class Kind>() {
      launch_ahead(backward_kernel<T, kLanes, kWhole, Kind>, prologue_grid(params, rows),
                   kPrologueWarps * kWarp, stream, params, gradients, size, rows,
                   sums ? records : nullptr);
    });
  if (!sums) return check_launch("prologue_backward");
  const dim3 grid(static_cast<unsigned>(ceil_div(record_size(size), kWarp)),
                  static_cast<unsigned>(prologue_slots(params)));
  launch_ahead(reduce_kernel<T>, grid, dim3(kWarp, kReducers), stream, params, gradients, size,
               records, static_cast<int>(record_blocks(params)));
  check_launch("prologue_backward");
}

#define TEMPERA_INSTANTIATE(T)                                                                  \
  template size_t prologue_backward_workspace(const PrologueParams<T>&);                        \
  template void prologue_backward(const PrologueParams<T>&, const PrologueGradients<T>&, void*, \
                                  Stream);

TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels::cuda
