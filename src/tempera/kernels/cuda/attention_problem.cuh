#pragma once

#include "tempera/kernels/cuda/device.cuh"
#include "tempera/kernels/cuda/stream.h"
#include "tempera/kernels/dropout.h"

// What the attention kernels share: a call with its scales finished, and the choice of a kernel.
namespace tempera::kernels::cuda {

template <class T>
struct Problem {
  Shape shape;
  Rows<const T> q, k, v;
  Mask mask;
  float scale;
  Rows<const float> a_q, a_k, a_v;  // finished; absent: 1
  Rows<const float> bias;
  float cap;
  Rows<const float> post;
  const float* sinks;
  float keep;  // 1 / (1 - dropout)
  uint32_t threshold;
  uint64_t seed;
  // Of decode; absent otherwise.
  const int32_t* lengths = nullptr;
  const int32_t* block_table = nullptr;
  int64_t table_stride = 0;
  int64_t block_size = 0;
  bool whole;  // rows of q, k and v are made of whole vectors

  __device__ int group() const { return static_cast<int>(shape.q_heads / shape.kv_heads); }
  // Row `row` of sequence b in keys, values or their scales.
  template <class X>
  __device__ const X* key_row(const Rows<const X>& rows, int64_t b, int64_t h, int row) const {
    if (!block_table) return row_at(rows, b, h, row);
    const auto size = static_cast<int>(block_size);
    return row_at(rows, block_table[b * table_stride + row / size], h, row % size);
  }
};

// Finished scales of one operand, dense (batch, heads, rows), and their gradients.
struct ScaleExtent {
  int64_t batch, heads, rows;
  int64_t count() const { return batch * heads * rows; }
  Rows<float> dense(float* data) const { return {data, heads * rows, rows, 1}; }
};

// out = rows * recipe, and where wanted slope = the derivative of out by <w, gelu(source)>, both
// dense. In attention_scales.cu.
template <class T>
void finish_scales(const Scale<T>& scale, const ScaleExtent& extent, float* out, float* slope,
                   Stream stream);
// The gradients of the scale's parts from d_scale (dense). own_source: the recipe reads the operand
// itself, whose gradient has its share already. partial: scale_partial floats.
template <class T>
int64_t scale_partial(const Scale<T>& scale, const ScaleExtent& extent);
template <class T>
void scale_backward(const Scale<T>& scale, const ScaleExtent& extent, const float* d_scale,
                    bool own_source, const ScaleGradient<T>& gradient, float* partial,
                    Stream stream);

// Hands out pieces of a workspace; without one it counts.
class Pieces {
 public:
  explicit Pieces(void* workspace) : base_(static_cast<unsigned char*>(workspace)) {}
  float* floats(int64_t count) {
    auto* piece = reinterpret_cast<float*>(base_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(float) + 255) / 256 * 256;
    return piece;
  }
  int32_t* ints(int64_t count) { return reinterpret_cast<int32_t*>(floats(count)); }
  size_t used() const { return used_; }

 private:
  unsigned char* base_;
  size_t used_ = 0;
};

// The scales of a call: those with a recipe are finished into the workspace.
template <class T>
struct CallScales {
  CallScales(const AttentionParams<T>& p, Pieces& pieces) {
    const Shape& s = p.shape;
    q_extent = {s.batch, s.q_heads, s.q_rows};
    k_extent = {s.batch, s.kv_heads, s.kv_rows};
    q = place(p.q_scale, q_extent, pieces, q_made);
    k = place(p.k_scale, k_extent, pieces, k_made);
    v = place(p.v_scale, k_extent, pieces, v_made);
  }
  void finish(const AttentionParams<T>& p, Stream stream) const {
    if (q_made) finish_scales(p.q_scale, q_extent, q_made, q_slope, stream);
    if (k_made) finish_scales(p.k_scale, k_extent, k_made, k_slope, stream);
    if (v_made) finish_scales(p.v_scale, k_extent, v_made, v_slope, stream);
  }
  static Rows<const float> place(const Scale<T>& scale, const ScaleExtent& extent, Pieces& pieces,
                                 float*& made) {
    if (!scale.recipe.active()) return scale.rows;
    made = pieces.floats(extent.count());
    return {made, extent.heads * extent.rows, extent.rows, 1};
  }

  ScaleExtent q_extent, k_extent;
  float *q_made = nullptr, *k_made = nullptr, *v_made = nullptr;
  float *q_slope = nullptr, *k_slope = nullptr, *v_slope = nullptr;  // of the backward pass
  Rows<const float> q, k, v;
};

template <class T>
Problem<T> make_problem(const AttentionParams<T>& p, const CallScales<T>& scales) {
  Problem<T> problem;
  problem.shape = p.shape;
  problem.q = p.q;
  problem.k = p.k;
  problem.v = p.v;
  problem.mask = p.mask;
  problem.scale = p.scale;
  problem.a_q = scales.q;
  problem.a_k = scales.k;
  problem.a_v = scales.v;
  problem.bias = p.bias;
  problem.cap = p.cap;
  problem.post = p.post;
  problem.sinks = p.sinks;
  problem.keep = 1 / (1 - p.dropout);
  problem.threshold = dropout_threshold(static_cast<double>(p.dropout));
  problem.seed = p.seed;
  problem.whole = aligned(p.q) && aligned(p.k) && aligned(p.v);
  return problem;
}

// Exponents are counted in units of 1 / kUnit: bf16 takes powers of 2, float those of e.
template <class T>
constexpr float kUnit = sizeof(T) == 4 ? 1.0F : kLog2E;
template <class T>
__device__ inline float power_of(float x) {
  if constexpr (sizeof(T) == 4)
    return expf(x);
  else
    return quick_exp2(x);
}

// The largest of many: an order of the bits that is that of the numbers.
__device__ inline void raise_to(float* target, float value) {
  value += 0.0F;  // -0 becomes 0
  if (value >= 0)
    atomicMax(reinterpret_cast<int*>(target), __float_as_int(value));
  else
    atomicMin(reinterpret_cast<unsigned*>(target), __float_as_uint(value));
}

// Calls kernel.template operator()<kColumns>() with the padded size of the rows.
template <class Kernel>
void with_columns(const Shape& shape, Kernel kernel) {
  const int64_t size = shape.qk_size > shape.v_size ? shape.qk_size : shape.v_size;
  if (size <= 64) return kernel.template operator()<64>();
  if (size <= 128) return kernel.template operator()<128>();
  return kernel.template operator()<256>();
}

// Logits are a query row's factor times products, and nothing is dropped or scaled: bf16 has
// kernels of its own for that.
template <class T>
bool is_plain(const Problem<T>& p) {
  const int64_t size = p.shape.qk_size > p.shape.v_size ? p.shape.qk_size : p.shape.v_size;
  return sizeof(T) == 2 && size <= 128 && !p.a_k && !p.a_v && !p.bias && p.cap <= 0 && !p.post &&
         p.threshold == 0;
}

// Calls kernel.template operator()<kColumns, kPlain>().
template <class T, class Kernel>
void with_kernel(const Shape& shape, bool plain, Kernel kernel) {
  with_columns(shape, [&]<int kColumns>() {
    if constexpr (sizeof(T) == 2 && kColumns <= 128)
      if (plain) return kernel.template operator()<kColumns, true>();
    kernel.template operator()<kColumns, false>();
  });
}

// The largest of what bytes.template operator()<kColumns, kPlain>() gives for rows of this shape.
template <class T, class Bytes>
int64_t most_bytes(const Shape& shape, Bytes bytes) {
  int64_t most = 0;
  for (const bool plain : {false, true})
    with_kernel<T>(shape, plain, [&]<int kColumns, bool kPlain>() {
      const auto needed = static_cast<int64_t>(bytes.template operator()<kColumns, kPlain>());
      most = needed > most ? needed : most;
    });
  return most;
}

// Shared memory of a block in one of the passes. In the files of the kernels.
template <class T>
int64_t forward_shared_bytes(const Shape& shape);
template <class T>
int64_t key_gradient_shared_bytes(const Shape& shape);
template <class T>
int64_t query_gradient_shared_bytes(const Shape& shape);
template <class T>
int64_t bias_gradient_shared_bytes(const Shape& shape);

}  // namespace tempera::kernels::cuda
