#pragma once

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/attention_logits.cuh"
#include "tempera/kernels/cuda/attention_tile.cuh"

// What the passes of attention's backward share.
namespace tempera::kernels::cuda {

// A block has 16 kM rows a warp of its own and goes over the others in tiles of kOthers; with two
// stages, one is copied while another is computed.
template <class T, int kColumns_, int kWarps_, int kM_, int kOthers_, int kStages_, bool kPlain_>
struct BackwardShape {
  static constexpr int kColumns = kColumns_, kWarps = kWarps_, kM = kM_, kOthers = kOthers_;
  static constexpr int kStages = kStages_;
  static constexpr bool kPlain = kPlain_;
  static constexpr int kThreads = kWarps * kWarp;
  // Of a multiprocessor, where registers allow it.
  static constexpr int kBlocks = sizeof(T) == 2 && kColumns == 64 && kM == 1 ? 3 : 1;
  static constexpr int kStride = tile_stride<T>(kColumns);
  static constexpr int kWarpRows = kTileRows * kM, kRows = kWarpRows * kWarps;
};

// A shape for bf16 with two stages where the GPU has the shared memory, with one where it has not;
// float has one. Chosen<kStages>::kBytes is what a block takes.
constexpr int64_t kBytesOfEveryGpu = 99 * 1024 - 256;  // from sm_80 on
template <class T, template <int> class Chosen>
struct StagedShapes {
  static constexpr bool kTwo = sizeof(T) == 2;
  static constexpr bool kOne = !kTwo || Chosen < kTwo ? 2 : 1 > ::kBytes > kBytesOfEveryGpu;
  static constexpr size_t kLeastBytes = Chosen < kOne ? 1 : 2 > ::kBytes;

  // start(Chosen<kStages>): whether the GPU takes it.
  template <class Start>
  static void launch(Start start) {
    bool started = false;
    if constexpr (kTwo) started = start(Chosen<2>());
    if constexpr (kOne) started = started || start(Chosen<1>());
    TEMPERA_CHECK(started, "attention_backward: ", kLeastBytes,
                  " bytes of shared memory needed, and a block of this GPU has fewer");
  }
};

// Asks for a kernel's shared memory; false, and no error behind, where a block has less.
template <class Kernel>
bool allow_shared_bytes(Kernel kernel, size_t bytes) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)) == cudaSuccess)
    return true;
  cudaGetLastError();
  return false;
}

// A recipe that reads its own operand: what the gradient of a row's scale adds to the row's own.
struct OwnRecipe {
  const float* w = nullptr;      // absent: no such recipe
  const float* slope = nullptr;  // of a row's scale, dense
  int64_t size = 0;
};

// What the gradients of a query row depend on, computed once: dense (batch, q_heads, q_rows).
struct GradientRows {
  float* mean;           // <out, d_out>
  float* factor;         // scale * a_q; times kUnit for the plain kernels
  float* lse;            // of the keys and the sink, in units of powers
  float* shift;          // d_logit = p (<d_out, v> a_v - shift), p the probability beside the sink
  int32_t *begin, *end;  // the keys that it sees, (batch, q_rows)
};

// Device pointers of the backward pass beside the problem itself.
template <class T>
struct Backward {
  GradientRows rows;
  float factor_unit;  // of rows.factor
  Rows<const T> d_out;
  bool whole;  // rows of d_out are made of whole vectors
  Rows<T> d_q, d_k, d_v;
  float *d_a_q, *d_a_k, *d_a_v;  // dense; absent: not wanted
  Rows<float> d_post, d_bias;
  OwnRecipe own_q, own_k, own_v;
};

// A query row of one of these kernels.
struct GradientRow : QueryRow {
  float lse = 0, shift = 0;
};

template <class T>
__device__ inline GradientRow gradient_row(const Problem<T>& p, const Backward<T>& g, int b, int h,
                                           int i) {
  GradientRow r;
  const int64_t dense = (b * p.shape.q_heads + h) * p.shape.q_rows + i;
  r.factor = g.rows.factor[dense];
  r.lse = g.rows.lse[dense];
  r.shift = g.rows.shift[dense];
  const int64_t sequence = b * p.shape.q_rows + i;
  r.keys = {g.rows.begin[sequence], g.rows.end[sequence]};
  load_features(p, b, h, i, dense, r);
  return r;
}

struct Element {
  float weight = 0;  // of the value: probability beside the sink, with dropout
  float d_post = 0;
  float d_x = 0;  // of scale * a_q * a_k * <q, k> + bias
};

struct Products {
  int j;  // the key
  float a_k, a_v;
  float dot, product;  // <q, k>, <d_out, v>
};

// Some elements side by side, so that whether the call has a feature is asked once for all of them;
// row(n) is the query row of the n-th.
template <bool kPlain, int kCount, class T, class Row>
__device__ inline void elements_of(const Problem<T>& p, Row row, const Products (&from)[kCount],
                                   Element (&to)[kCount]) {
  Logit logit[kCount];
  float keep[kCount];
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    logit[n] = {from[n].dot * from[n].a_k * row(n).factor};
    keep[n] = 1;
  }
  if constexpr (!kPlain) {
    apply_features(p, [&](auto feature) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) feature(row(n), from[n].j, logit[n]);
    });
    if (const Dropout<T> dropout{p}; dropout.on())
#pragma unroll
      for (int n = 0; n < kCount; ++n) keep[n] = dropout(row(n), from[n].j);
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const GradientRow& r = row(n);
    const auto [x, slope] = logit[n];
    const Post post{r.post};
    const float value = kPlain ? x : post(x);
    // A logit of -inf hides its key, and the row's lse may be -inf with it.
    const bool seen = r.keys.holds(from[n].j) && value > -INFINITY;
    const float power = kPlain ? value - r.lse : fmaf(value, kUnit<T>, -r.lse);
    const float probability = seen ? power_of<T>(power) : 0;
    const float d_logit = probability * fmaf(keep[n] * from[n].a_v, from[n].product, -r.shift);
    const bool counts = probability != 0;  // what it is multiplied with may be infinite
    to[n].weight = probability * keep[n];
    to[n].d_post = counts ? d_logit * x : 0;
    to[n].d_x = counts ? d_logit * (kPlain ? 1 : post.factor * slope) : 0;
  }
}

// d += the recipe's share: half h of a product's numbers, whose row `row` holds the operand.
// d_scale: of the row's finished scale.
template <class T, int kTiles>
__device__ inline void add_recipe(const OwnRecipe& own, int64_t head, int64_t dense, float d_scale,
                                  const T* row, int half, float (&d)[kTiles][4]) {
  // A row that nobody reads may hold anything.
  if (!own.w || d_scale == 0) return;
  const float d_f = d_scale * own.slope[dense];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e;
      if (column >= own.size) continue;
      const float x = to_float(row[column]);
      const Normal normal = normal_at(x);
      d[n][half * 2 + e] = fmaf(d_f * own.w[head * own.size + column],
                                fmaf(x, normal.density, normal.below), d[n][half * 2 + e]);
    }
}

template <class T>
void launch_key_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream);
template <class T>
void launch_query_gradients(const Problem<T>& p, const Backward<T>& g, Stream stream);
template <class T>
void launch_bias_gradient(const Problem<T>& p, const Backward<T>& g, Stream stream);

}  // namespace tempera::kernels::cuda
