#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/cuda/stream.h"
#include "tempera/kernels/fused.h"

// The passes over memory between the matrix products of a transformer. For T = float and BFloat16;
// arithmetic is in float. All pointers are of the device unless a comment says otherwise, nothing
// waits for the device, and the same inputs give the same bits. Workspaces are aligned to 256
// bytes.
namespace tempera::kernels::cuda {

// Columns of a row that norms, activations and embeddings take.
constexpr bool takes_columns(int64_t size) { return size >= 8 && size % 8 == 0; }
constexpr int64_t kWidestNorm = 16384;

// Rows of up to kWidestNorm columns.
template <class T>
void norm_forward(const NormParams<T>& params, const NormOutputs<T>& outputs, Stream stream);

size_t norm_backward_workspace(int64_t rows, int64_t size);
template <class T>
void norm_backward(const NormParams<T>& params, const NormGradients<T>& gradients, void* workspace,
                   Stream stream);

enum class Activation { kSilu, kGelu, kGeluTanh };
// y = f(x), or where gated y = f(gate) * up, a row of x being the gate's `size` columns and then
// up's.
template <class T>
struct ActivationParams {
  Activation kind = Activation::kSilu;
  bool gated = false;
  int64_t rows = 0;
  int64_t size = 0;  // columns of y
  const T* x = nullptr;
};
template <class T>
void activation_forward(const ActivationParams<T>& params, T* y, Stream stream);
template <class T>
void activation_backward(const ActivationParams<T>& params, const T* d_y, T* d_x, Stream stream);

// device_factor: one more factor of the gradient; absent: 1.
template <class T>
void cross_entropy(const CrossEntropyParams<T>& params, const float* device_factor, Stream stream);
// factor = 1 / max(1, targets that are not negative).
void target_factor(int64_t rows, const int64_t* targets, float* factor, Stream stream);
// sum = factor * the sum of values; factor absent: 1.
void sum(int64_t count, const float* values, const float* factor, float* sum, Stream stream);

// d_table[id] = the sum of d_y's rows with that id, in the order of the rows; a row whose id is
// negative counts nowhere.
template <class T>
struct EmbeddingGradient {
  int64_t rows = 0;
  int64_t size = 0;
  int64_t classes = 0;  // rows of the table, ids are below
  const int64_t* ids = nullptr;
  const T* d_y = nullptr;
  float* d_table = nullptr;
};
size_t embedding_backward_workspace(int64_t rows);
template <class T>
void embedding_backward(const EmbeddingGradient<T>& params, void* workspace, Stream stream);

// One parameter of the model. Exactly one of the gradients is given.
struct OptimizerTensor {
  int64_t count = 0;
  float* master = nullptr;
  BFloat16* value = nullptr;  // a copy that the model reads; absent: it reads the master
  const float* gradient = nullptr;
  const BFloat16* gradient_bf16 = nullptr;
  float* mean = nullptr;
  float* square = nullptr;
  float decay = 0;
  float rate_factor = 1;
};
// A piece of one tensor, the work of a block.
struct OptimizerChunk {
  int64_t first = 0;
  int64_t tensor = 0;
};
// Both arrays lie on the device, made once and copied there by the caller; this makes the second
// one from the first (on the host).
std::vector<OptimizerChunk> optimizer_chunks(std::span<const OptimizerTensor> tensors);
struct OptimizerList {
  const OptimizerTensor* tensors = nullptr;
  const OptimizerChunk* chunks = nullptr;
  int64_t chunk_count = 0;
};

// What changes from step to step lies on the device, so that a captured graph reads it anew.
struct AdamWStep {
  float rate = 0;
  float beta1 = 0, beta2 = 0;
  float epsilon = 0;
  float correction1 = 1, correction2 = 1;  // 1 - beta^step
};
// factor: of clipping, absent: 1; where it is not finite nothing changes.
void adamw(const OptimizerList& list, const AdamWStep* step, const float* factor, Stream stream);

size_t gradient_norm_workspace(int64_t chunk_count);
// result[0] = the norm of all gradients, result[1] = max_norm / norm where the norm is larger than
// max_norm, else 1. max_norm 0: no limit. Not finite, both: a gradient is not, or too large.
void gradient_norm(const OptimizerList& list, float max_norm, float* result, void* workspace,
                   Stream stream);

}  // namespace tempera::kernels::cuda
