#pragma once

#include <torch/types.h>

#include <cstdint>

// The elementwise parts of a layer, each in one place.
namespace tempera::nn {

// Over the last dimension; weight undefined: no gain.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);
torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias, double eps);

// silu(gate) * up of rows (gate, up).
torch::Tensor swiglu(const torch::Tensor& gate_up);

// Turns the columns (i, i + r/2) of the first r of every row (B, heads, T, size) by the angles
// whose cosines and sines, (T, r/2) or (B, T, r/2), are given.
torch::Tensor rotary(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);

// Mean over the rows of hidden (N, width) whose target (N) is not -100, of the cross-entropy of
// hidden . weight^T; 0 where no row has a target. weight: (classes, width).
torch::Tensor cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                            const torch::Tensor& targets, double label_smoothing);

// Where dropout acts in a pass; each site of each layer has random numbers of its own.
enum class DropoutSite { kEmbedding, kAttention, kAttentionOutput, kMlpOutput };

// A function of its arguments alone, so that a pass done again gives the same bits.
uint64_t dropout_seed(uint64_t pass_seed, int64_t layer, DropoutSite site);

// Sets a share of the numbers to 0 and scales the rest. The mask is a function of the seed and the
// shape.
torch::Tensor dropout(const torch::Tensor& x, double share, uint64_t seed);

// A generator on the device that starts from the seed.
torch::Generator seeded_generator(uint64_t seed, const torch::Device& device);
// Well-mixed bits of both.
uint64_t mix_seed(uint64_t seed, uint64_t counter);

}  // namespace tempera::nn
